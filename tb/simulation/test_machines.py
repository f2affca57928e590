"""The machines of the systems that T3-RTL is compared with: what the table says agrees with itself, and a wrong one is
refused."""

import math
import tomllib

import numpy as np
import pytest

from sim.errors import UsageError
from sim.experiments.catalogue import collective
from sim.experiments.program_kernels import input_sectors
from sim.experiments.program_model import node_of, program_work
from sim.host.address_space import input_base
from sim.workloads.calibration import FIXED_DEPTH, FLOPS, analytic_cycles
from sim.workloads.machines import TABLE, machine, machines, read_machines, recorded_gemms
from sim.workloads.sublayer import SubLayer

CYCLES_NS = {
    "paper": 1.0,
    "paper-2x": 1.0,
    "mi300x": 0.773,
    "h100": 0.611,
    "h800": 0.611,
    "h200": 0.427,
    "a100-40": 1.31,
    "a100-80": 1.00,
    "a100-80-pcie": 1.06,
}
"""COLLECTIVES.md, section 4."""
WRONG = [
    ("tflops = 989", "tflops = 0", "tflops of machine .* must be a positive number, got 0"),
    ("channels = 64", "channels = 48", "channels of machine h100 must be a power of two, got 48"),
    ("compute_units = 132", "compute_units = 1.5", "compute_units of machine .* must be a whole number"),
    ('links = "switch"', 'links = "tree"', "links of machine .* must be one of ring, mesh, switch, pcie"),
    ('dtype = "fp16"', 'dtype = "fp8"', "dtype of machine .* must be one of fp16, fp32"),
    ("tile = [128, 256]", "tile = [128]", "tile of machine .* must be rows and columns"),
    ("efficiency = 0.856", "efficiency = 1.2", "efficiency of machine .* must be above 0 and at most 1"),
    ("fixed_depth = 110", "fixed_depth = -1", "fixed_depth of machine .* must be at least 0"),
    ("llc_mib = 50\n", "", "machine h100 lacks a field"),
    ("llc_mib = 50", "llc_mib = 50\nllc_kib = 3", "machine h100 lacks a field or has one too many"),
    ("channels = 64", "channels = ", "the table of machines is no TOML"),
]


def test_cycles_follow_from_bandwidth_and_channels():
    assert set(machines()) == set(CYCLES_NS)
    for name, cycle in CYCLES_NS.items():
        assert machine(name).cycle_ns == pytest.approx(cycle, rel=0.005)


def test_links_in_bytes_a_cycle_of_a_channel():
    # 450 GB/s of 3,350, of 32 B a cycle; T3's 75 GB/s are 2.34 B a cycle of each channel.
    assert machine("h100").link_bytes_per_cycle == pytest.approx(32 * 450 / 3350)
    assert machine("paper").link_bytes_per_cycle == pytest.approx(75 / 32)
    assert (machine("paper").link_latency, machine("h100").link_latency) == (500, 818)


@pytest.mark.parametrize("name", CYCLES_NS)
def test_a_slice_has_its_share_of_every_matrix(name: str):
    found = machine(name)
    assert found.side**2 * found.slice_channels == found.channels
    rows, columns = found.tile
    assert rows % found.side == columns % found.side == 0


@pytest.mark.parametrize("name", CYCLES_NS)
def test_the_table_says_how_well_the_model_fits(name: str):
    found = machine(name)
    deviations = found.deviations()
    if not deviations:
        assert found.gemm.worst is None
        return
    assert max(map(abs, deviations)) == pytest.approx(found.gemm.worst, abs=0.001)
    mean = math.sqrt(sum(value**2 for value in deviations) / len(deviations))
    assert mean == pytest.approx(found.gemm.rms, abs=0.001)


def test_the_model_of_h200_is_the_best_of_its_recordings():
    found = machine("h200")
    files = "h200x4_concurrent.json", "h200x8_gemm_rs_ag_times.json"
    figures = [figure for file in files for figure in recorded_gemms(file)]
    assert len(figures) == len(found.gemm.figures) == 14

    def rms(efficiency: float, fixed_depth: int) -> float:
        scale = found.gemm.efficiency / efficiency
        deviations = []
        for figure in figures:
            depth = (figure.k + fixed_depth) / (figure.k + found.gemm.fixed_depth)
            deviations.append(found.gemm_us(figure.m, figure.n, figure.k) * depth * scale / figure.us - 1)
        return math.sqrt(sum(value**2 for value in deviations) / len(deviations))

    efficiency, fixed = found.gemm.efficiency, found.gemm.fixed_depth
    others = [(efficiency * factor, fixed + shift) for factor in (0.98, 1, 1.02) for shift in (-20, 0, 20)]
    assert min(others, key=lambda pair: rms(*pair)) == (efficiency, fixed)


def test_paper_is_the_machine_of_full_size_runs():
    layer = SubLayer(8192, 4256 - 4256 % 128, 2048, 8)
    found = machine("paper")
    assert found.tflops * 1e12 * found.gemm.efficiency == FLOPS
    assert found.gemm.fixed_depth == FIXED_DEPTH
    tiles = (layer.m // 128) * (layer.n // 128)
    waves = math.ceil(tiles / found.compute_units) * found.compute_units / tiles
    # calibration.py has no waves.
    assert found.gemm_us(layer.m, layer.n, layer.k) * 1000 == pytest.approx(analytic_cycles(layer, 80) * waves)


def test_the_gemm_alone_of_jax_is_one_wave_of_43_us():
    assert machine("h100").gemm_us(1024, 4096, 4096) == pytest.approx(43.0, rel=0.001)
    assert machine("h100").cycles(43.0) == 70_337


@pytest.mark.parametrize(("there", "wrong", "message"), WRONG)
def test_a_wrong_machine_is_refused(there: str, wrong: str, message: str):
    text = TABLE.read_text()
    begin, end = text.index("[h100]"), text.index("[h800]")
    section = text[begin:end]
    assert there in section
    with pytest.raises(UsageError, match=message):
        read_machines(section.replace(there, wrong, 1))


def test_an_unknown_machine_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"machine must be one of paper, paper-2x, mi300x, .*; got 'b200'"):
        machine("b200")


def test_every_machine_has_a_source():
    entries = tomllib.loads(TABLE.read_text())
    assert all(len(entry["source"]) > 20 and len(entry["gemm"]["fit"]) > 20 for entry in entries.values())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("paper", (16384, 3072, 192)),
        ("mi300x", (8192, 57344, 256)),
        ("h100", (4096, 4096, 4096)),
        ("a100-40", (32768, 1024, 128)),
    ],
)
def test_operands_lie_in_plain_memory_and_apart(name: str, shape: tuple[int, int, int]):
    """Also of a small depth, whose panels are far shorter than the rows of all bank groups that lie between them."""
    spec = collective("gemm-alone", 8, machine=name, shape=shape, dtype=machine(name).dtype, mode="mirrored")
    work = program_work(spec)
    config = node_of(spec, work.program, work.tilings)
    first = input_base(config.channels)
    end = first + input_sectors(spec, config, work.program, work.laid)
    (plan,) = work.kernels[0]
    columns = {key: np.asarray(value) for key, value in plan.workgroups.items()}
    ends = {
        side: columns[f"{side}_va"] + (plan.kernel["steps"] - 1) * columns[f"{side}_sectors"] + columns[f"{side}_last"]
        for side in "ab"
    }
    assert first == columns["b_va"].min()
    assert ends["b"].max() <= columns["a_va"].min()
    assert ends["a"].max() <= end
