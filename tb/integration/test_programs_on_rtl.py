"""Programs on the RTL: gates that launch events open, tiles in any order, K splits, two kernels at a time, sums
replayed in the order of their column commands. Each checker is shown to fail."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw.config import SECTOR_BYTES
from sim.cli.main import command_line
from sim.errors import UsageError
from sim.experiments import program_check
from sim.experiments.catalogue import collective
from sim.experiments.check import Checked, check
from sim.experiments.experiment import job_of, simulate, work_of
from sim.experiments.hardware import EARLY_GATE
from sim.experiments.program_model import ProgramWork
from sim.experiments.run import Outcome
from sim.experiments.spec import Spec
from sim.experiments.tensors import CALLS
from sim.workloads.kernel_plans import KernelPlan
from sim.workloads.program_plans import TILE_ORDERS

RAGGED: dict[str, Any] = {"tile": (16, 32), "wfs": 4}


def spec_of(name: str, gpus: int = 3, rows: int = 20, depth: int = 40, **options: Any) -> Spec:
    """A small run, ragged in both directions."""
    return collective(name, gpus, shape=(gpus * rows, 40, depth), **RAGGED | options)


@cache
def run(spec: Spec) -> tuple[ProgramWork, Outcome, Checked]:
    """`spec` on the RTL."""
    work = work_of(spec)
    assert isinstance(work, ProgramWork)
    return work, *simulate(spec, work)


def checked_again(spec: Spec, outcome: Outcome) -> tuple[str, ...]:
    """What is said of another outcome of the same run."""
    work, _, _ = run(spec)
    return check(spec, work, job_of(spec, work).build.config, outcome).errors


GATHERED = spec_of("ring-all-gather-gemm", choices={"fine": True})


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "int32"])
def test_a_gemm_reads_what_the_owners_of_a_gathered_array_wrote(dtype: str, fine: bool) -> None:
    """Every read is compared, and counted: all rows of A for each tile of the output."""
    work, outcome, checked = run(spec_of("ring-all-gather-gemm", dtype=dtype, choices={"fine": fine}))
    assert checked.errors == ()
    assert all(form["matches"] for form in checked.closed_forms.values()), checked.closed_forms
    pitch = work.tilings["a"].pitch_sectors
    across = work.tilings["output"].tiles_across
    for status in outcome.ranks:
        assert sum(seen["reads"] for seen in status["gathered"]) == 3 * 20 * pitch * across
        assert not status["waiting"]["waits"]


@pytest.mark.slow
@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "int32"])
def test_a_gemm_of_eight_gpus_reads_what_the_owners_wrote(dtype: str, fine: bool) -> None:
    _, _, checked = run(spec_of("ring-all-gather-gemm", 8, dtype=dtype, choices={"fine": fine}))
    assert checked.errors == ()


def test_a_gate_that_opens_one_launch_early_is_caught() -> None:
    """Nothing else sees it: the data that is gathered is right in the end, and so is every counter."""
    _, _, checked = run(replace(GATHERED, bug=EARLY_GATE))
    assert checked.mismatches == 0
    assert all(form["matches"] for form in checked.closed_forms.values())
    assert checked.errors
    assert all("that are not what their owners wrote, the first in a[" in error for error in checked.errors)


def sliced(dtype: str = "fp16", gpus: int = 3, **options: Any) -> Spec:
    """Two tile rows to a chunk, each in four slices of the depth that are sent and waited for one after another."""
    usual: dict[str, Any] = {"wiring": "mesh", "tile_order": "abreast", "choices": {"fine": True, "slices": 4}}
    return spec_of("direct-all-gather-gemm", gpus, 32, 96, dtype=dtype, **usual | options)


@pytest.mark.parametrize("dtype", ["fp16", "int32"])
def test_a_gemm_reads_slices_of_the_depth_as_they_arrive(dtype: str) -> None:
    """Every read is compared, and counted."""
    work, outcome, checked = run(sliced(dtype))
    assert checked.errors == ()
    assert checked.mismatches == 0
    assert all(form["matches"] for form in checked.closed_forms.values()), checked.closed_forms
    tiling, across = work.tilings["a"], work.tilings["output"].tiles_across
    assert (tiling.rows, tiling.columns) == (4 * 32, 96 // 4)
    for status in outcome.ranks:
        assert sum(seen["reads"] for seen in status["gathered"]) == 3 * tiling.sectors * across
        assert not status["waiting"]["waits"]


@pytest.mark.parametrize(
    "fields",
    [
        {"stalls": 20},
        pytest.param({"wiring": "switch"}, marks=pytest.mark.wide),
        pytest.param({"gpus": 8}, marks=pytest.mark.slow),
    ],
    ids=["stalls", "switch", "eight"],
)
def test_slices_are_right_wherever_they_are_held_up(fields: dict[str, Any]) -> None:
    _, _, checked = run(sliced(**fields))
    assert checked.errors == ()
    assert checked.mismatches == 0
    assert all(form["matches"] for form in checked.closed_forms.values()), checked.closed_forms


def test_a_slice_whose_gate_opens_one_launch_early_is_caught() -> None:
    _, _, checked = run(sliced(bug=EARLY_GATE))
    assert checked.mismatches == 0
    assert checked.errors
    assert all("that are not what their owners wrote, the first in a[" in error for error in checked.errors)


def test_a_slice_that_is_not_waited_for_is_caught() -> None:
    """A workgroup that goes on when the first slice is there reads what nobody has written: so it does begin before the
    last one is."""
    work, _, _ = run(sliced())

    def rash(plan: KernelPlan) -> KernelPlan:
        return replace(plan, kernel=plan.kernel | {"slice_steps": 0})

    wrong = replace(work, kernels=tuple(tuple(map(rash, plans)) for plans in work.kernels))
    _, checked = simulate(sliced(), wrong)
    assert any("that are not what their owners wrote, the first in a[" in error for error in checked.errors)


def test_a_slice_that_never_comes_is_named() -> None:
    """A workgroup that runs waits for one launch event more of each slice than there are."""
    work, _, _ = run(sliced())
    (plan,), *others = work.kernels
    launches = plan.kernel["slice_launches"]
    late = replace(plan, kernel=plan.kernel | {"slice_launches": launches + 1})
    outcome, checked = simulate(sliced(), replace(work, kernels=((late,), *others)))
    assert not outcome.finished
    waits, opened = (
        "kernel gemm of rank 0 waits for the gate of a[",
        f"which {launches} of {launches + 1} launch events",
    )
    assert any(error.startswith(waits) and opened in error for error in checked.errors), checked.errors


def later(plan: KernelPlan) -> KernelPlan:
    """`plan` with a last gate that needs one launch event more than there are."""
    *waits, (workgroup, gate, launches) = plan.waits
    return replace(plan, waits=(*waits, (workgroup, gate, launches + 1)))


def test_a_gate_that_never_opens_is_named() -> None:
    work, _, _ = run(GATHERED)
    wrong = replace(work, kernels=(tuple(map(later, work.kernels[0])), *work.kernels[1:]))
    outcome, checked = simulate(GATHERED, wrong)
    assert not outcome.finished
    part, row = work.gates[wrong.kernels[0][0].waits[-1][1]]
    needed = wrong.kernels[0][0].waits[-1][2]
    sentence = f"kernel gemm of rank 0 waits for the gate of {part}, tile row {row}, which {needed - 1} of {needed}"
    assert any(error.startswith(sentence) for error in checked.errors), checked.errors


@pytest.mark.parametrize("order", TILE_ORDERS)
def test_tiles_may_come_in_any_order_and_in_splits(order: str) -> None:
    """Each split stores an addend of every tile: S updates a GPU, S + 1 where the neighbour stores straight into it."""
    work, outcome, checked = run(spec_of("split-k-reduce-scatter", dtype="int32", tile_order=order))
    assert checked.errors == ()
    chunk = 20 * work.tilings["output"].pitch_sectors
    for status in outcome.ranks:
        assert status["registers"]["sectors_gemm_update"] == 2 * 2 * chunk
        assert status["registers"]["sectors_rs_update"] == (2 + 1) * chunk


def test_a_second_kernel_runs_beside_the_gemm() -> None:
    """On slots of its own: it begins with the GEMM, and its end is not waited for."""
    work, outcome, checked = run(spec_of("ring-all-reduce", dtype="int32", choices={"residual": True}))
    assert checked.errors == ()
    for status, plans in zip(outcome.ranks, work.kernels, strict=True):
        begin, end = status["spans"]["begin"], status["spans"]["end"]
        assert begin[1] - begin[0] < 10
        assert 0 < end[0] < end[1]
        assert sorted(status["spans"]["retired"][:2]) == sorted(plan.count for plan in plans)


def test_an_independent_gemm_runs_beside_a_collective() -> None:
    _, alone, _ = run(spec_of("all-to-all-dma", 2))
    _, beside, checked = run(spec_of("all-to-all-dma", 2, independent=True))
    assert checked.errors == ()
    assert checked.closed_forms["gemm_read"]["counted"] > 0
    # It takes memory, not link: the exchange is hardly later.
    done = [max(status["done_cycles"] for status in outcome.ranks) for outcome in (alone, beside)]
    assert done[0] <= done[1] <= 1.5 * done[0]


def shared(sharing: str) -> tuple[int, int]:
    """End of a GEMM of two rounds of workgroups, and of a kernel that copies beside it on 40 of 80 compute units."""
    spec = spec_of(
        "all-to-all",
        2,
        rows=800,
        depth=0,
        tile=(32, 64),
        choices={"copied": True, "units": 40},
        independent=True,
        gemm_shape=(2 * 160, 1024, 8),
        sharing=sharing,
    )
    work, outcome, checked = run(spec)
    assert checked.errors == ()
    assert work.kernels[0][1].count == 160
    gemm, copy, _ = outcome.ranks[0]["spans"]["end"]
    return gemm, copy


def test_a_kernel_that_copies_shares_compute_units_with_a_gemm() -> None:
    ends = {name: shared(name) for name in ("own", "partitioned", "side-by-side", "priority")}
    gemm, copy = ({name: end[number] for name, end in ends.items()} for number in (0, 1))
    # Of 160 workgroups half as many run at a time where 40 of 80 compute units are kept free; a kernel that came first
    # gives its own back when it is over.
    assert 1.15 * gemm["own"] > gemm["priority"] > 1.03 * gemm["own"]
    assert gemm["partitioned"] > 1.15 * gemm["own"]
    # One that came later gets none before the first workgroups have left.
    assert copy["side-by-side"] > copy["priority"] + gemm["own"] / 4


def test_c_is_reduced_where_it_lies() -> None:
    """C = A B + C: chunks of A are fetched, C is not."""
    spec = spec_of("fetched-gemm", dtype="fp32")
    work, outcome, checked = run(spec)
    assert checked.errors == ()
    for status in outcome.ranks:
        assert status["registers"]["sectors_gemm_update"] == 3 * work.tilings["c"].sectors
        assert status["registers"]["sectors_gemm_store"] == 0
    # Another C than the one that lay there is another result.
    other = tuple(
        replace(given, lies={part: piece if part.array == "a" else piece ^ 1 for part, piece in given.lies.items()})
        for given in work.given
    )
    assert check(spec, replace(work, given=other), job_of(spec, work).build.config, outcome).mismatches


def hosted(*rates: float, how: str = "", wiring: str = "hosted-ring") -> Spec:
    """Two GPUs and a host, tiles ragged in both directions."""
    fields: dict[str, Any] = {"shape": (2 * 40, 56, 40), "dtype": "fp32", "tile": (16, 24), "wfs": 4}
    choices = {how: True} if how else {}
    return collective("hosted-gemm", 3, wiring=wiring, choices=choices, host_bandwidth=rates, **fields)


@pytest.mark.parametrize("how", ["", "spread", "straight"])
def test_matrices_of_a_host_are_multiplied_into_it(how: str) -> None:
    """A and B are compared where they are read, C where it lies; nothing of C is fetched."""
    spec = hosted(9, 18, how=how, wiring="hosted-mesh" if how == "spread" else "hosted-ring")
    work, outcome, checked = run(spec)
    assert checked.errors == () and checked.mismatches == 0
    assert all(form["matches"] for form in checked.closed_forms.values()), checked.closed_forms
    c = work.tilings["c"].sectors
    assert outcome.ranks[2]["registers"]["sectors_rs_update"] == 2 * c
    # A workgroup reads its rows of A, 16 at the most, and its columns of B, 24: five tiles down, three across.
    pitch = work.tilings["a"].pitch_sectors
    for status in outcome.ranks[:2]:
        assert sum(seen["reads"] for seen in status["gathered"]) == (80 * 3 + 56 * 5) * pitch
    # Another C than the one that lay there is another result.
    other = tuple(
        replace(given, lies={part: piece ^ 1 if part.array == "c" else piece for part, piece in given.lies.items()})
        for given in work.given
    )
    assert check(spec, replace(work, given=other), job_of(spec, work).build.config, outcome).mismatches


def test_links_of_a_host_have_the_rate_that_they_are_given() -> None:
    """What crosses them, in bytes over bytes a cycle, is the least that a run takes, and all else is little beside it;
    other links of the same nodes are as fast as ever."""
    spec = hosted(1.5, 6)
    work, outcome, checked = run(spec)
    assert checked.errors == ()
    config = job_of(spec, work).build.config
    slow = config.link_bytes_per_cycle * 1.5 / config.link_bandwidth
    down = SECTOR_BYTES * (work.tilings["a"].sectors + work.tilings["b"].sectors) / slow
    ends = [status["spans"]["end"][0] for status in outcome.ranks[:2]]
    assert all(down < end < 1.05 * down for end in ends)
    # The links of the ring carry a chunk of A, and are busy for that.
    for status in outcome.ranks[:2]:
        busy = SECTOR_BYTES * work.tilings["a"].sectors / config.link_bytes_per_cycle
        assert 0.9 * busy < status["link_busy"][0] < 1.1 * busy
    faster = run(hosted(3, 6))[1]
    assert 0.95 < 2 * faster.ranks[0]["spans"]["end"][0] / ends[0] < 1.1


def both_ways(dtype: str) -> Iterator[Spec]:
    """Programs in whose chunks more than two rounded addends meet."""
    yield spec_of("split-k-reduce-scatter", 4, dtype=dtype, choices={"splits": 3})
    yield spec_of("direct-reduce-scatter", dtype=dtype)
    yield spec_of("split-k-reduce-scatter", dtype=dtype, initial="zeroing")


@pytest.mark.parametrize("spec", [*both_ways("fp16"), *both_ways("fp32")], ids=lambda spec: f"{spec.name}-{spec.dtype}")
def test_sums_of_many_addends_are_the_replay_of_their_commands(spec: Spec) -> None:
    work, outcome, checked = run(spec)
    assert checked.errors == ()
    assert checked.mismatches == 0
    assert outcome.logs is not None
    with pytest.raises(ValueError, match="depends on the order in which they meet"):
        program_check.golden(work)


def test_a_replay_finds_lost_doubled_and_wrong_operands_and_another_order() -> None:
    spec = spec_of("split-k-reduce-scatter", 4, dtype="fp16", choices={"splits": 3})
    work, outcome, _ = run(spec)
    assert outcome.logs is not None
    kept = work.program.result(0)[0]
    first, tiling = work.place(kept)
    log, *others = outcome.logs
    mine = np.flatnonzero((log["sector"] >= first) & (log["sector"] < first + tiling.sectors))
    line = mine[len(mine) // 2]

    def errors(changed: np.ndarray) -> tuple[str, ...]:
        return checked_again(spec, replace(outcome, logs=[changed, *others]))

    assert errors(log) == ()
    assert any("operands never came" in error for error in errors(np.delete(log, line)))
    assert any("came that nobody sent" in error for error in errors(np.insert(log, line, log[line])))
    wrong = log.copy()
    wrong["operand"][line][0] ^= 1
    assert any("came that nobody sent" in error for error in errors(wrong))
    # Sums of fp16 in another order: same operands, other roundings.
    same = [np.flatnonzero(log["sector"] == sector) for sector in range(first, first + tiling.sectors)]
    turned = log.copy()
    for lines in same:
        turned[lines[1:]] = log[lines[1:][::-1]]
    assert any("elements differ" in error for error in errors(turned))


@pytest.mark.parametrize("gpus", [2, 3, 4])
def test_both_ways_at_once_is_the_sum_of_each(gpus: int) -> None:
    """Half of each chunk each way round, over both ports where there are three GPUs or more."""
    _, outcome, checked = run(spec_of("ring-reduce-scatter-both", gpus, 40, 0))
    assert checked.errors == ()
    for status in outcome.ranks:
        used = [busy > 0 for busy in status["link_busy"]]
        assert used == [True, gpus > 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"tile": (32, 128)},
        {"tile": (32, 128), "policy": "paced"},
        {"tile": (64, 128)},
        {"tile": (32, 64), "dtype": "fp32"},
        {"tile": (128, 128)},
        {"tile": (128, 128), "shape": (8192, 256, 0)},
    ],
    ids=["round-robin", "paced", "tall", "fp32", "square", "long"],
)
def test_both_ways_at_once_take_half_the_time_of_one(options: dict[str, Any]) -> None:
    """`t3rtl run --collective ring-reduce-scatter-both --gpus 4 --shape 2048 256 0 --policy round-robin --tile-order
    interleaved --tile 32 128`, beside the same one way: both links are busy nearly all the time, because remote stores
    of each wait for that one only. Decisions 65 and 190 say where that is not so."""
    cycles = {}
    plain = {"policy": "round-robin", "shape": (2048, 256, 0), "tile_order": "interleaved"}
    for name in ("ring-reduce-scatter", "ring-reduce-scatter-both"):
        spec = collective(name, 4, **plain | options)
        _, outcome, checked = run(spec)
        assert checked.errors == ()
        cycles[name] = max(status["done_cycles"] for status in outcome.ranks)
    one, both = cycles.values()
    print(f"one way {one:,} cycles, both ways {both:,}: {both / one:.3f}")
    assert both <= 0.52 * one


SERVED: dict[str, dict[str, Any]] = {
    "broadcast-chain": {"choices": {"pieces": 2, "root": 1}, "rows": 20},
    "all-to-all": {"dtype": "fp32"},
    "all-to-all-dma": {"dtype": "bf16"},
    "ring-all-gather": {},
    "ring-all-reduce": {"dtype": "int32", "op": "max", "choices": {"pieces": 2}, "rows": 40},
    "ring-reduce-scatter": {"direction": "ccw", "initial": "zeroing"},
}


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("gpus", [2, 3])
def test_every_program_that_a_ring_serves_runs(gpus: int, name: str) -> None:
    _, _, checked = run(spec_of(name, gpus, **{"depth": 16, **SERVED[name]}))
    assert checked.errors == ()


@pytest.mark.parametrize("name", ["direct-all-gather", "direct-all-reduce", "direct-all-gather-gemm", "broadcast-tree"])
def test_direct_programs_run_where_a_block_has_one_destination(name: str) -> None:
    _, _, checked = run(spec_of(name, 2, dtype="int32"))
    assert checked.errors == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ring-all-reduce", "ring-all-gather", "ring-reduce-scatter-both", "broadcast-chain"])
def test_programs_of_eight_gpus_run(name: str) -> None:
    """An all-reduce of 8 needs more ranges than preset paper has: the simulated node has 32."""
    _, _, checked = run(spec_of(name, 8, 32, 0))
    assert checked.errors == ()


def call(folder: Path, x: np.ndarray, name: str, dtype: str, *options: str) -> tuple[int, np.ndarray | None]:
    """`t3rtl reduce` of `x`: exit code, and y if there is one."""
    inputs, out = folder / "x.npz", folder / "y.npz"
    np.savez(inputs, x=x)
    words = ["--inputs", str(inputs), "--dtype", dtype, "--out", str(out), "--collective", name, *options]
    code = command_line(["reduce", *words, "--results", str(folder / "results.json")])
    return code, np.load(out)["y"] if out.exists() else None


@pytest.mark.parametrize("name", CALLS)
def test_calls_on_a_users_arrays_are_their_definitions(name: str, tmp_path: Path) -> None:
    """Of three ranks with tensors of three dimensions, whole numbers so that numpy sums them exactly."""
    x = np.random.default_rng(1).integers(-100, 100, (3, 6, 5, 2)).astype(np.float32)
    code, y = call(tmp_path, x, name, "fp32")
    assert code == 0
    total = x.sum(axis=0)
    wanted = {
        "reduce-scatter": total.reshape(3, 2, 5, 2),
        "all-reduce": np.stack([total] * 3),
        "all-gather": np.stack([x.reshape(18, 5, 2)] * 3),
        "all-to-all": x.reshape(3, 3, 2, 5, 2).transpose(1, 0, 2, 3, 4).reshape(3, 6, 5, 2),
    }
    assert y is not None
    assert y.dtype == np.float32
    assert np.array_equal(y, wanted[name])


@pytest.mark.parametrize(
    ("shape", "name", "options", "sentence"),
    [
        ((4, 8, 5), "all-to-all", [], "the ring has no link there; the ring serves"),
        ((3, 7, 5), "all-to-all", [], "must be a multiple of the 3 GPUs for all_to_all_single, got 7"),
        ((3, 6), "all-gather", ["--op", "max"], "all-gather does not reduce, so it has no choice of op"),
        ((5, 10), "all-reduce", [], "must have shape (N, ...) for N = 2, 3, 4, 8, 16 GPUs, got (5, 10)"),
        ((3, 6), "gossip", [], "collective must be one of reduce-scatter, all-gather, all-reduce, all-to-all"),
        (
            (3, 6),
            "all-reduce",
            ["--topology", "star"],
            "topology must be one of ring, ring-one-way, mesh, ideal-switch",
        ),
    ],
)
def test_calls_that_cannot_be_are_refused(
    shape: tuple[int, ...],
    name: str,
    options: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, y = call(tmp_path, np.zeros(shape, np.int32), name, "int32", *options)
    printed = capsys.readouterr().err
    assert code == 2 and y is None
    assert sentence in printed and printed.count("\n") == 1, printed


def test_what_cannot_be_simulated_is_refused_with_what_can() -> None:
    for name, gpus, wiring, sentence in (
        ("direct-all-gather", 4, "ring", r"has no link there; the ring serves ring-reduce-scatter, .*broadcast-chain$"),
        (
            "ring-reduce-scatter-both",
            4,
            "ring-one-way",
            "the ring-one-way has no link there; the ring-one-way serves ring-reduce-scatter, split-k",
        ),
        (
            "direct-all-gather",
            4,
            "torus",
            "topology must be one of ring, ring-one-way, mesh, ideal-switch, switch, hosted-ring, hosted-mesh; "
            "got 'torus'",
        ),
        ("ring-all-gather", 1, "ring", "gpus must be a whole number from 2 to 32, got 1"),
    ):
        with pytest.raises(UsageError, match=sentence):
            collective(name, gpus, wiring=wiring, shape=(96, 40, 16))
    with pytest.raises(UsageError, match="gpus on topology switch must be a whole number from 2 to 16, got 17"):
        collective("ring-all-gather", 17, wiring="switch", shape=(17, 40, 0))
    with pytest.raises(UsageError, match="mode must be ring on topology switch"):
        collective("direct-all-gather", 4, wiring="switch", shape=(96, 40, 0), mode="mirrored")
    with pytest.raises(UsageError, match="shape M must be a multiple of the 3 chunks of a, got 100"):
        work_of(collective("ring-all-gather-gemm", 3, shape=(100, 40, 16)))
    with pytest.raises(UsageError, match="shape K must be at least 1"):
        work_of(collective("ring-all-gather-gemm", 3, shape=(99, 40, 0)))
