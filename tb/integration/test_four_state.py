"""A small ring of exported nodes in a simulator that knows X: every register and memory starts unknown, as in hardware.

Icarus Verilog (Debian: `apt-get install iverilog`) runs the text that the export gives to others, without the initial
values of its registers. The bench, `four_state_ring.sv`, fails on an X at an output after reset, and on a wrong sum.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from amaranth.lib import wiring
from pyosys import libyosys

from hw.config import Configuration, preset
from hw.export.verilog import to_systemverilog
from hw.link.wire import flit_layout, message_layout
from hw.messages import Access, Messages, TrafficClass
from hw.near_bank.bank_group import BankGroupUnit
from hw.node import Node
from hw.registers.map import find_register
from sim.collectives.compiler import Placement, compile_program, workgroup_stride
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.host.address_space import ARRAY_BASE
from sim.host.register_writes import arbiter_writes, arm_writes, register_write
from sim.host.tiling import Tiling
from sim.topologies.ring import ring
from tb.drivers.payload import pack

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed (Debian: apt-get install iverilog)"
)
MODULES: dict[str, Callable[[Configuration], wiring.Component]] = {"t3_node": Node, "t3_near_bank": BankGroupUnit}
TIMEOUT = 1200
"""Seconds after which a simulation is held for hung."""
BENCH = Path(__file__).with_name("four_state_ring.sv")
GPUS = 3
"""The smallest ring in which a DMA engine sends."""
TILING = Tiling(rows=8, columns=32, tile_rows=4, tile_columns=16, wfs=2)
CONFIG = preset("tiny", trigger_blocks=64, tracker_sets=16)
_INITIAL_VALUE = re.compile(r"^(  (?:output )?reg [^;=]*?) = [^;]*;$", re.MULTILINE)


def without_initial_values(text: str) -> str:
    """`text` of an export with nothing known of its registers before reset."""
    answer = _INITIAL_VALUE.sub(r"\1;", text)
    assert not re.search(r"^ *initial\b", answer, re.MULTILINE)
    assert not re.search(r"^  (?:output )?reg [^;]*=", answer, re.MULTILINE)
    return answer


def partials() -> np.ndarray:
    """What each GPU's GEMM stores: small whole numbers, whose sum does not depend on the order."""
    shape = (GPUS, GPUS, TILING.rows, TILING.columns)
    return np.random.default_rng(3).integers(-64, 65, shape).astype(np.float16)


def sectors(array: np.ndarray) -> list[int]:
    """The 256-bit words of `array`, in the order of memory."""
    return [int.from_bytes(row.tobytes(), "little") for row in np.ascontiguousarray(array).reshape(-1, 16)]


def stores(config: Configuration, rank: int, chunks: np.ndarray) -> list[int]:
    """The requests of GPU `rank`'s GEMM: chunk by chunk as the ring wants them, tile by tile."""
    layout = Messages(config).compute_request
    words = sectors(chunks)
    answer = []
    for step in range(GPUS):
        chunk = (rank - 1 - step) % GPUS
        for workgroup in range(TILING.workgroups):
            for wf in range(TILING.wfs):
                tile = TILING.wf_tile(workgroup, wf)
                for row in range(tile.rows):
                    for sector in range(tile.row_bytes // 32):
                        place = chunk * TILING.sectors + tile.offset + row * TILING.pitch_sectors + sector
                        request = {
                            "access": Access.STORE,
                            "va": ARRAY_BASE + place,
                            "wg": chunk * workgroup_stride(config, TILING) + workgroup,
                            "wf": wf,
                            "traffic_class": TrafficClass.GEMM,
                            "id": 0,
                            "mask": 0xFFFFFFFF,
                            "data": words[place],
                        }
                        answer.append(pack(layout, **request))
    return answer


def write_tables(config: Configuration, folder: Path) -> dict[str, int]:
    """Fill `folder` with the tables of the bench; returns its parameters."""
    arrays = partials()
    backing = ARRAY_BASE + -(-GPUS * TILING.sectors // 8) * 8
    registers = []
    for rank in range(GPUS):
        program, topology = ring_reduce_scatter(GPUS), ring(GPUS, config.links)
        placements = {"output": Placement(ARRAY_BASE, TILING)}
        silence = register_write(config, "link_silence", link_silence=1)
        writes = [silence, *compile_program(program, config, topology, rank, placements, backing=backing).writes]
        enable = register_write(config, "interrupt_enable", fault=1)
        registers += [
            f"{rank:02x}{address:04x}{value:08x}" for address, value in [*writes, *arbiter_writes(config), enable]
        ]
        requests = stores(config, rank, arrays[rank])
        (folder / f"stores{rank}.hex").write_text("".join(f"{request:091x}\n" for request in requests))
    sums = arrays.sum(axis=0)
    expected = [
        f"{rank:02x}{rank * TILING.sectors + place:08x}{word:064x}"
        for rank in range(GPUS)
        for place, word in enumerate(sectors(sums[rank]))
    ]
    (folder / "registers.hex").write_text("\n".join(registers) + "\n")
    (folder / "expected.hex").write_text("\n".join(expected) + "\n")
    ((control, arm),) = arm_writes(config)
    status = find_register(config, "status")
    return {
        "GPUS": GPUS,
        "FLIT": flit_layout(config).size,
        "MESSAGE": message_layout(config).size,
        "REGISTERS": len(registers),
        "STORES": len(requests),
        "EXPECTED": len(expected),
        "STATUS": status.address,
        "CONTROL": control,
        "ARMED": status.field("armed").mask,
        "ARM": arm,
    }


def run(folder: Path, texts: dict[str, str], config: Configuration = CONFIG, **parameters: int) -> list[str]:
    """The lines that the bench prints with the modules `texts`; `parameters` override those of the tables."""
    wanted = {**write_tables(config, folder), **parameters}
    files = [BENCH]
    for name, text in texts.items():
        files.append(folder / f"{name}.sv")
        files[-1].write_text(without_initial_values(text))
    program = folder / "ring.vvp"
    build = ["iverilog", "-g2012", "-o", str(program), "-s", "four_state_ring"]
    build += [f"-Pfour_state_ring.{name}={value}" for name, value in wanted.items()]
    built = subprocess.run([*build, *map(str, files)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    simulate = ["vvp", "-n", str(program), f"+tables={folder}"]
    done = subprocess.run(simulate, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    return done.stdout.splitlines()


def with_multiplexers(component: wiring.Component, name: str) -> str:
    """The export with a multiplexer for each condition: X in a condition is X in what it selects, where an `if` would
    take it for false. Icarus runs it six times as fast, too."""

    def convert(design: libyosys.Design, command: str) -> None:
        libyosys.Pass.call(design, f"tee -q {command.replace('proc -nomux', 'proc')}")

    with patch("hw.export.verilog.run_pass", convert):
        return to_systemverilog(component, name)


@cache
def multiplexed(config: Configuration = CONFIG) -> dict[str, str]:
    return {name: with_multiplexers(MODULES[name](config), name) for name in MODULES}


@pytest.mark.parametrize("protection", [pytest.param("links", marks=pytest.mark.wide), "all"])
def test_no_unknown_leaves_a_node_after_reset(tmp_path: Path, protection: str) -> None:
    """A whole reduce-scatter, X never taken for a value: every sum is right, and no memory tells of an error."""
    config = replace(CONFIG, protection=protection)
    assert "always_comb" not in multiplexed(config)["t3_node"]
    said = run(tmp_path, multiplexed(config), config)
    assert said[-1].startswith("PASS: 0 errors"), said


def test_the_bench_sees_a_block_without_reset(tmp_path: Path) -> None:
    """The node's state machine of the collective is never reset."""
    texts = multiplexed()
    node, found = re.subn(r"(  t3_node__state state \([^;]*?\.rst)\(rst\)", r"\1(1'h0)", texts["t3_node"])
    assert found == 1
    said = run(tmp_path, texts | {"t3_node": node}, LIMIT=20)
    assert any(line.startswith("ERROR: X on control") for line in said), said


def test_the_exported_text_gets_past_time_zero(tmp_path: Path) -> None:
    """The text that others get: after reset and twenty cycles, programming begun, nothing is unknown."""
    said = run(tmp_path, {name: to_systemverilog(MODULES[name](CONFIG), name) for name in MODULES}, LIMIT=30)
    assert said[0].startswith("ERROR: not done after 30 cycles: done 000"), said
    assert said[-1].startswith("FAIL: 1 errors"), said


@pytest.mark.slow
def test_the_exported_text_reduces(tmp_path: Path) -> None:
    said = run(tmp_path, {name: to_systemverilog(MODULES[name](CONFIG), name) for name in MODULES})
    assert said[-1].startswith("PASS: 0 errors"), said


@pytest.mark.slow
def test_the_bench_sees_a_wrong_sum(tmp_path: Path) -> None:
    """GEMMs that store other numbers than those that the sums are made of."""
    right = stores
    with patch(f"{__name__}.stores", lambda config, rank, chunks: right(config, rank, np.ones_like(chunks))):
        said = run(tmp_path, multiplexed())
    assert any(re.match(r"ERROR: sector \d+ of GPU \d is", line) for line in said), said
