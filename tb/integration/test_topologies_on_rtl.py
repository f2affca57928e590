"""Every program on every topology that serves it, on the RTL: what every rank holds in every bit, and every counter at
its closed form; and how busy the links of a mesh are."""

from collections.abc import Iterator
from typing import Any

import pytest

from sim.collectives.known import PROGRAMS
from sim.experiments.catalogue import collective
from sim.experiments.experiment import simulate, work_of
from sim.experiments.run import Outcome
from sim.experiments.spec import Spec
from sim.experiments.spec_values import HOSTED

RAGGED: dict[str, Any] = {"tile": (16, 32), "wfs": 4}
WHOLE: dict[str, Any] = {**RAGGED, "dtype": "int32"}
OPTIONS: dict[str, dict[str, Any]] = {
    "ring-all-reduce": {"choices": {"pieces": 2}, "dtype": "int32"},
    "direct-all-reduce": {"dtype": "int32"},
    "direct-reduce-scatter": {"dtype": "int32", "op": "max"},
    "split-k-reduce-scatter": {"dtype": "int32"},
    "broadcast-chain": {"choices": {"pieces": 2, "root": 1}},
    "broadcast-tree": {"choices": {"pieces": 2, "root": 1}},
    "all-to-all": {"dtype": "fp32"},
    "all-to-all-dma": {"dtype": "bf16"},
    "direct-all-gather-gemm": {"choices": {"fine": True}},
}
"""What is chosen where the defaults would leave something out, or give sums of floats an order."""
REDUCING = (
    *(("ring-reduce-scatter", wiring) for wiring in ("ring", "mesh")),
    ("ring-reduce-scatter-both", "ring"),
    ("ring-all-reduce", "ring"),
    *((name, "mesh") for name in ("direct-reduce-scatter", "direct-all-reduce", "split-k-reduce-scatter")),
)
"""Programs that add up, and what they are tried on."""
QUICK = {("ring", 3), ("mesh", 3), ("mesh", 4), ("switch", 3)}
"""What is tried in quick tests: GPUs with two and three ports."""
WIDE = {("ideal-switch", 3)}
GPUS = (2, 3, 4, 8)
LARGE = {"ring": (16,), "mesh": (16,)}
"""What is tried with more GPUs, too."""


def served() -> Iterator[Any]:
    """Program, topology and GPUs; those that are not quick are marked. With a host there are the links of a ring or of
    a mesh: what has nothing to do with it is tried on these."""
    for name, known in PROGRAMS.items():
        for wiring in known.topologies:
            if wiring in HOSTED and name != "hosted-gemm":
                continue
            for gpus in (*GPUS, *LARGE.get(wiring, ())):
                rare = pytest.mark.wide if (wiring, gpus) in WIDE else pytest.mark.slow
                marks: Any = [] if (wiring, gpus) in QUICK else rare
                yield pytest.param(name, wiring, gpus, marks=marks)


def run(spec: Spec) -> Outcome:
    """`spec` on the RTL, right in everything."""
    outcome, checked = simulate(spec, work_of(spec))
    assert checked.errors == ()
    assert checked.mismatches == 0
    assert all(form["matches"] for form in checked.closed_forms.values()), checked.closed_forms
    return outcome


def all_done(outcome: Outcome) -> int:
    """Cycles until the last rank is done."""
    return max(status["done_cycles"] for status in outcome.ranks)


@pytest.mark.parametrize(("name", "wiring", "gpus"), list(served()))
def test_every_program_is_right_on_every_topology(name: str, wiring: str, gpus: int) -> None:
    """Chunks ragged in both directions."""
    rows = 20 * (gpus - 1 if name == "hosted-gemm" else gpus)
    run(collective(name, gpus, wiring=wiring, shape=(rows, 40, 16), **RAGGED | OPTIONS.get(name, {})))


@pytest.mark.parametrize("wiring", ["ring", "mesh", "switch"])
def test_all_wait_for_a_rank_that_is_armed_late(wiring: str) -> None:
    """The others have stored all that they can when rank 1 is armed: what is for it waits for its grant, wherever it is
    held up, and none of it is lost. A rank that is not armed launches no kernel."""
    name = "ring-all-reduce" if wiring == "ring" else "direct-all-reduce"
    late = 40_000
    assert all_done(run(collective(name, 3, wiring=wiring, shape=(60, 40, 16), **WHOLE))) < late
    spec = collective(name, 3, wiring=wiring, shape=(60, 40, 16), late_rank=1, late_cycles=late, **WHOLE)
    assert all_done(run(spec)) > late


@pytest.mark.parametrize("policy", ["round-robin", "compute-first", "mca", "paced"])
def test_a_switch_serves_every_policy_with_stalls(policy: str) -> None:
    """Links to the switch and from it stand at random."""
    run(collective("direct-all-reduce", 3, policy, wiring="switch", shape=(60, 40, 16), stalls=20, **WHOLE))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["round-robin", "compute-first", "mca", "paced"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "int32"])
@pytest.mark.parametrize(("name", "wiring"), REDUCING)
def test_sums_of_every_type_are_right_under_every_policy(name: str, wiring: str, dtype: str, policy: str) -> None:
    """Every interface stands at random; sums of floats are replayed in the order in which they were made."""
    run(collective(name, 3, policy, wiring=wiring, shape=(60, 40, 16), stalls=20, **RAGGED | {"dtype": dtype}))


@pytest.mark.wide
def test_each_lane_of_a_node_has_a_switch_of_its_own() -> None:
    """Two lanes of one channel each: packets stay in theirs. What is sent lies in memory, other data on each rank."""
    settings = (("channels", 2), ("lanes", 2))
    outcome = run(collective("all-to-all-dma", 3, wiring="switch", shape=(96, 128, 0), settings=settings, **WHOLE))
    assert len(outcome.switch_busy) == 2 and min(min(lane) for lane in outcome.switch_busy) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct-all-gather", "all-to-all-dma"])
def test_all_links_of_a_switch_of_eight_are_busy(name: str) -> None:
    """Every GPU has one link to the switch and one from it, over each of which seven eighths of an array go."""
    outcome = run(collective(name, 8, wiring="switch", shape=(8 * 128, 128, 0), tile=(32, 128)))
    cycles = all_done(outcome)
    there = [round(100 * status["link_busy"][0] / cycles, 1) for status in outcome.ranks]
    back = [round(100 * busy / cycles, 1) for busy in outcome.switch_busy[0]]
    print(f"{name}: {cycles:,} cycles; busy percent to the switch {there}, from it {back}")
    assert min(*there, *back) >= 95


@pytest.mark.slow
def test_chunks_in_one_order_crowd_at_one_output() -> None:
    """Stores of a reduce-scatter to one owner after another, the same for all ranks at once, wait at the owner's link;
    shifted by the rank they use all links (FLUX, arXiv 2406.06858, figure 7)."""
    cycles = {}
    for naive in (True, False):
        spec = collective(
            "direct-reduce-scatter",
            8,
            wiring="switch",
            shape=(8 * 128, 256, 0),
            dtype="int32",
            tile=(16, 32),
            choices={"shifted": not naive},
        )
        outcome = run(spec)
        cycles[naive] = all_done(outcome)
        shares = [round(100 * busy / cycles[naive], 1) for busy in outcome.switch_busy[0]]
        print(f"naive {naive}: {cycles[naive]:,} cycles, links from the switch busy {shares} %")
    assert cycles[True] > 2 * cycles[False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "least"),
    [("direct-all-gather", 256, 95), ("all-to-all-dma", 512, 95), ("all-to-all-dma", 256, 94.7)],
)
def test_all_ports_of_a_mesh_of_eight_are_busy(name: str, rows: int, least: float) -> None:
    """Seven ports that the memory feeds without effort, from the start to the last flit that is awaited: `rows` of 256
    bytes from each GPU to each other. Short transfers share the start among fewer bytes: held where they are."""
    slow_links = (("link_bandwidth", 12.0),)
    outcome = run(collective(name, 8, wiring="mesh", shape=(8 * rows, 128, 0), tile=(32, 128), settings=slow_links))
    cycles = all_done(outcome)
    shares = [[round(100 * busy / cycles, 1) for busy in status["link_busy"]] for status in outcome.ranks]
    print(f"{name}: {cycles:,} cycles; busy percent by port")
    for rank, row in enumerate(shares):
        print(f"  rank {rank}: {row}")
    assert min(min(row) for row in shares) >= least
