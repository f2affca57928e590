"""How long reads take: percentiles against numpy's, latencies of a channel against its timing, of a GPU by count."""

from pathlib import Path

import numpy as np
import pytest

from hw.config import preset
from hw.messages import Policy, Threshold
from sim.benches.dram_trace import arbiter_control, build, play
from sim.benches.trace_file import Trace
from sim.experiments.catalogue import shape
from sim.experiments.experiment import run_experiment
from sim.experiments.scenarios import SCENARIOS
from sim.experiments.spec import Spec
from sim.simulator.read_latencies import LIMIT, PERCENTILES, latency_figures, latency_text, percentile, read_latencies

APART = 300
"""Cycles between reads that shall not wait for each other."""


def test_percentiles_are_numpys(tmp_path: Path) -> None:
    drawn = np.random.default_rng(7).geometric(0.01, 3001)
    files = [tmp_path / "a0.txt", tmp_path / "a1.txt", tmp_path / "missing.txt"]
    for file, part in zip(files, (drawn[:1000], drawn[1000:]), strict=False):
        values, often = np.unique(part, return_counts=True)
        file.write_text("".join(f"{value} {count}\n" for value, count in zip(values, often, strict=True)))
    counts = read_latencies(files)
    for percent in (0.01, 1, 50, 95, 99, 100):
        assert percentile(counts, percent) == np.percentile(drawn, percent, method="inverted_cdf")
    assert latency_figures(counts) == {
        "reads": 3001,
        **{f"p{percent}": np.percentile(drawn, percent, method="inverted_cdf") for percent in PERCENTILES},
        "max": drawn.max(),
    }


def test_nothing_read_has_no_latency(tmp_path: Path) -> None:
    assert latency_figures(read_latencies([tmp_path / "missing.txt"])) is None
    assert latency_text(None) == "n/a: nothing was read"
    with pytest.raises(ValueError, match="no read"):
        percentile({}, 50)


def test_the_longest_is_a_bound_when_it_was_too_long_to_count() -> None:
    assert "65,535 or more" in latency_text(latency_figures({3: 1, LIMIT: 1}))
    assert "at most 4;" in latency_text(latency_figures({3: 1, 4: 1}))


def lone_reads(sectors: list[int]) -> dict[str, int] | None:
    """Latencies on the paper's channel without refresh of reads so far apart that none waits for another."""
    count = len(sectors)
    addresses = np.array(sectors, np.uint64) << np.uint64(5)
    trace = Trace(np.zeros(count, np.uint64), addresses, np.arange(1, count + 1, dtype=np.uint64) * np.uint64(APART))
    control = arbiter_control(Policy.ROUND_ROBIN, Threshold.NONE, 2000, refresh=False)
    return play(build(preset("paper")), {"compute": trace}, control).read_latency


def test_a_read_waits_for_activate_and_precharge_as_its_row_needs_them() -> None:
    timing = preset("paper").timing
    same_row, other_row = 4, 1 << 10
    closed = lone_reads([0])
    assert closed is not None
    hit = lone_reads([0, same_row])
    conflict = lone_reads([0, other_row])
    assert hit is not None
    assert conflict is not None
    assert (closed["reads"], hit["reads"], conflict["reads"]) == (1, 2, 2)
    assert hit["max"] == closed["max"]
    assert closed["max"] - hit["p50"] == timing.rcd_rd
    assert conflict["max"] - closed["max"] == timing.rp


(PALLAS,) = (item for item in SCENARIOS if item.name == "ring-all-gather-gemm-2-pallas")
ARRAYS = shape(name="reads", gpus=2, shape=(64, 64, 32), tile=(16, 32), wfs=2, initial="zeroing", stalls=20)


@pytest.mark.parametrize("spec", [PALLAS, ARRAYS], ids=lambda spec: spec.name)
def test_every_read_of_a_gpu_is_counted_once(spec: Spec) -> None:
    """Of the measured run, not of the GEMM alone and the zeroing before it."""
    result = run_experiment(spec)
    assert result["passed"], result["errors"]
    latency, reads = result["read_latency"], result["dram_sectors"]
    assert latency["reads"] == reads["gemm"]["read"] * spec.gpus
    assert preset("paper").timing.cl <= latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"] < LIMIT
