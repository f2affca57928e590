"""Links whose bits are wrong now and then: every result is right in every bit, and what it costs is counted."""

from collections import Counter
from typing import Any

import pytest

from hw.protection import LEVELS, NONE
from sim.experiments.catalogue import collective, shape
from sim.experiments.experiment import run_experiment
from sim.experiments.regression import quiet
from sim.experiments.results import Result
from sim.experiments.spec import Spec

ERRORS = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
"""Probabilities that a bit is wrong."""
RUNS = {1e-7: 10, 1e-8: 40}
"""How often a rate is run that not every run of eleven million bits shows."""
WHOLE: dict[str, Any] = {"tile": (16, 32), "wfs": 2, "alone": False}


def outcome(spec: Spec) -> Result:
    with quiet():
        return run_experiment(spec, threads=0)


def ring(rate: float, **fields: Any) -> Spec:
    return shape(gpus=4, shape=(64, 64, 32), bit_errors=rate, **(WHOLE | fields))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_reduction_on_bad_links_is_right(seed: int) -> None:
    """Sums, which a packet that is taken twice or not at all makes wrong."""
    clean, bad = outcome(ring(0.0, seed=seed)), outcome(ring(1e-4, seed=seed))
    assert clean["passed"] and bad["passed"], bad["errors"]
    assert clean["link_errors"] == {"flipped_bits": 0, "damaged": 0, "replays": 0}
    seen = bad["link_errors"]
    # A flit may be wrong in several bits.
    assert 0.8 * seen["flipped_bits"] < seen["damaged"] <= seen["flipped_bits"]
    assert seen["replays"] > 0
    assert bad["cycles"] > clean["cycles"]


def test_a_mesh_with_bad_links_gathers_what_was_sent() -> None:
    """One read, sends on several ports, each of which goes back by itself."""
    result = outcome(collective("direct-all-reduce", 3, wiring="mesh", shape=(60, 40, 0), bit_errors=5e-5, **WHOLE))
    assert result["passed"], result["errors"]
    assert result["link_errors"]["replays"] > 0


def test_both_links_on_the_way_through_a_switch_may_be_bad() -> None:
    """What a link damages is sent again by the GPU before it, or by the switch."""
    result = outcome(collective("direct-all-reduce", 3, wiring="switch", shape=(60, 40, 0), bit_errors=5e-5, **WHOLE))
    assert result["passed"], result["errors"]
    seen = result["link_errors"]
    # Those on the way to the switch are not counted by a GPU.
    assert 0 < seen["damaged"] < seen["flipped_bits"] and seen["replays"] > 0


@pytest.mark.wide
def test_without_protection_the_errors_are_seen_in_the_result() -> None:
    """The control: were it right without, the errors would be none."""
    result = outcome(ring(1e-4, settings=(("protection", "none"),)))
    assert result["link_errors"]["flipped_bits"] > 0
    assert not result["passed"]


def bound_by_links(**fields: Any) -> Result:
    """A reduce-scatter that the links bound; its result is right."""
    result = outcome(shape(gpus=4, shape=(512, 256, 0), tile=(32, 64), alone=False, policy="round-robin", **fields))
    assert result["passed"], (fields, result["errors"])
    return result


@pytest.mark.slow
def test_goodput_by_error_rate(capsys: pytest.CaptureFixture[str]) -> None:
    """At every rate, as often as it takes to meet errors; the table is in sim/report/RESULTS.md."""
    cycles = {}
    for rate in ERRORS:
        results = [bound_by_links(bit_errors=rate, seed=1 + run) for run in range(RUNS.get(rate, 1))]
        seen: Counter[str] = sum((Counter(result["link_errors"]) for result in results), Counter())
        cycles[rate] = sum(result["cycles"] for result in results) / len(results)
        with capsys.disabled():
            print(f"\n{rate:8.0e} {len(results)} times {cycles[rate]:9,.0f} cycles, ", end="")
            print(f"{cycles[0.0] / cycles[rate]:6.1%}, ", ", ".join(f"{seen[name]:,} {name}" for name in seen), end="")
        assert rate < 1e-8 or bool(seen["flipped_bits"]) == (rate > 0), (rate, seen)
    # A link with fewer errors than that loses less than one in a hundred.
    assert cycles[1e-8] < 1.01 * cycles[0.0]


@pytest.mark.slow
def test_protection_takes_no_bandwidth_of_a_clean_link() -> None:
    """Within one in a hundred of the links without CRC, sequence numbers and replay."""
    cycles = {level: bound_by_links(settings=(("protection", level),))["cycles"] for level in LEVELS}
    assert max(cycles.values()) < 1.01 * cycles[NONE], cycles
