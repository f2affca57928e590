"""Kernels that communicate on a share of the compute units, on the RTL: how long they take; nothing is lost."""

import pytest

from sim.experiments.catalogue import own
from sim.experiments.experiment import run_experiment
from sim.experiments.results import Result
from sim.experiments.spec import Spec

SHAPE = (2048, 512, 64)
"""Sixteen pieces of 32 KiB in each of four chunks of 512 x 512 numbers."""
RATE = 8.0


def spec(variant: str = "sequential", units: int = 0, rate: float = 0.0) -> Spec:
    return own(SHAPE, 4, variant, communication_units=units, communication_bandwidth=rate)


def run(variant: str = "sequential", units: int = 0, rate: float = 0.0) -> Result:
    result = run_experiment(spec(variant, units, rate))
    assert result["passed"], result["errors"]
    return result


@pytest.mark.wide
def test_few_units_take_as_long_as_their_rate_says() -> None:
    """A chunk is as many rounds of pieces as it has pieces over the units: each takes the unit's time, and what reading
    and storing it takes besides. Half the units take twice as long."""
    everywhere, two, one = run(), run(units=2, rate=RATE), run(units=1, rate=RATE)
    piece = 32 * 1024 / RATE
    for phase, steps in (("rs_cycles", 4), ("ag_cycles", 3)):
        rounds = steps * 16 / 2
        assert rounds * piece < two[phase] < 1.15 * rounds * piece
        assert one[phase] == pytest.approx(2 * two[phase], rel=0.03)
        assert everywhere[phase] < two[phase]
    # The GEMM before them has all units, and every sector is moved once whoever moves it.
    assert len({result["gemm_cycles"] for result in (everywhere, two, one)}) == 1
    assert everywhere["dram_sectors"] == two["dram_sectors"] == one["dram_sectors"]


@pytest.mark.parametrize("variant", ["t3-mca", "rs-nmc"])
def test_kernels_behind_and_before_the_hardware_have_their_share_too(variant: str) -> None:
    assert run(variant, 1, RATE)["cycles"] > 1.2 * run(variant)["cycles"]


def test_without_a_rate_memory_and_link_set_the_time() -> None:
    """What is left out of the model: a unit as fast as the memory lets it makes 8 as good as 80."""
    assert run(units=8)["rs_cycles"] == pytest.approx(run()["rs_cycles"], rel=0.02)
