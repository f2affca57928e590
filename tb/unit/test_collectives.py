"""Programs agree with the closed forms and with goldens that know nothing of programs, and wrong ones are refused."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.collectives.check import check
from sim.collectives.interpret import chunks_sent, interpret
from sim.collectives.program import Access, Kernel, Part, Program, ProgramError, Region, Send, Traffic, Via
from sim.collectives.ring_all_gather import ring_all_gather
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.golden.arithmetic import pattern_type
from sim.simulator.sources import modules_reached

ROOT = Path(__file__).parents[2]


def patterns(program: Program, elements: int, seed: int = 5) -> np.ndarray:
    """Random bit patterns for what the kernels of `program` store, `elements` per chunk."""
    kind = pattern_type(program.arrays[0].dtype)
    shape = program.gpus, len(program.gemm(0).parts) * elements
    return np.random.default_rng(seed).integers(0, np.iinfo(kind).max, shape, kind, endpoint=True)


def agree(program: Program) -> None:
    """Data with the golden, traffic of every rank with the closed form."""
    inputs = patterns(program, 24)
    outcome = interpret(program, inputs)
    assert (outcome.result == program.golden(inputs)).all()
    assert outcome.moved == tuple(program.closed_form(rank) for rank in range(program.gpus))
    assert outcome.traffic == tuple(program.moves(rank) for rank in range(program.gpus))


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("gpus", [2, 3, 4, 5, 8, 16, 32])
def test_ring_reduce_scatter_agrees_with_golden_and_closed_form(gpus: int, direction: int) -> None:
    agree(ring_reduce_scatter(gpus, direction))


@pytest.mark.parametrize("first_touch", [True, False])
@pytest.mark.parametrize("op", ["add", "min", "max"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "int32"])
def test_every_type_and_operation_agrees_with_the_golden(dtype: str, op: str, first_touch: bool) -> None:
    agree(ring_reduce_scatter(4, 1, dtype, op, first_touch))


@pytest.mark.parametrize("gpus", [2, 3, 4, 8, 16])
def test_ring_all_gather_agrees_with_golden_and_closed_form(gpus: int) -> None:
    agree(ring_all_gather(gpus))


def test_the_papers_ratios_follow_from_the_closed_forms() -> None:
    """T3 section 6.2: reads of the reduce-scatter 2.5x and 2.2x fewer, output writes 14 % and 7 % fewer."""
    for gpus, reads, writes in ((8, 2.5, 1.143), (16, 2.214, 1.067)):
        program = ring_reduce_scatter(gpus)
        kernels, hardware = program.closed_forms["kernels"], program.moves()
        assert kernels.reads / hardware.reads == pytest.approx(reads, abs=0.001)
        assert kernels.stores / hardware.updates == pytest.approx(writes, abs=0.001)


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("gpus", [2, 3, 4, 8, 16])
def test_each_sum_travels_the_ring_once(gpus: int, direction: int) -> None:
    """Follows chunk c from rank to rank along its sends."""
    travels_once(ring_reduce_scatter(gpus, direction), direction)


def travels_once(program: Program, direction: int) -> None:
    gpus = program.gpus
    regions = [{region.chunk: region for region in program.regions(rank)} for rank in range(gpus)]
    for chunk in range(gpus):
        rank = (chunk + direction) % gpus
        order = [rank]
        assert regions[rank][chunk].via is Via.STORE
        while regions[rank][chunk].sends:
            (send,) = regions[rank][chunk].sends
            assert (send.chunk, send.access) == (chunk, Access.UPDATE)
            rank = send.peer
            order.append(rank)
            assert regions[rank][chunk].updates == 2
        assert order == [(chunk + direction * (1 + step)) % gpus for step in range(gpus)]
        assert rank == chunk and regions[rank][chunk].final
        assert program.result(rank) == (Part("output", chunk),)


def test_wrong_ring_order_is_caught() -> None:
    right = ring_reduce_scatter(4)
    turned = replace(right, regions=lambda rank: right.regions((rank + 1) % 4))
    with pytest.raises(AssertionError):
        travels_once(turned, 1)
    with pytest.raises(ProgramError):
        check(turned)
    # The other way round is a program without contradictions, with another order of additions.
    other = replace(right, **{name: getattr(ring_reduce_scatter(4, -1), name) for name in ("regions", "kernels")})
    check(other)
    with pytest.raises(AssertionError):
        agree(other)


def test_a_wrong_closed_form_is_caught() -> None:
    right = ring_reduce_scatter(4)
    form = right.closed_form(0)["output"]
    for name in ("reads", "local_updates", "arriving_updates", "egress", "blocks", "triggers", "local_stores"):
        wrong = replace(form, **{name: getattr(form, name) + 1})
        with pytest.raises(AssertionError):
            agree(replace(right, closed_form=lambda rank, wrong=wrong: {"output": wrong}))


def test_chunks_are_sent_in_the_order_of_the_ring() -> None:
    """NCCL's order: the previous rank's chunk first, the own chunk never; all-gather begins with the own."""
    assert chunks_sent(ring_reduce_scatter(5), 2) == (1, 0, 4, 3)
    assert chunks_sent(ring_reduce_scatter(5, -1), 2) == (3, 4, 0, 1)
    assert chunks_sent(ring_all_gather(5), 2) == (2, 1, 0, 4)
    assert ring_reduce_scatter(5).gemm(2).chunks == (1, 0, 4, 3, 2)


def changed(change: Callable[[Region], Region | None], rank: int = 1) -> Program:
    """The ring reduce-scatter of 4 with the regions of `rank` changed, or left out."""
    right = ring_reduce_scatter(4)

    def regions(number: int) -> Iterable[Region]:
        for region in right.regions(number):
            other = change(region) if number == rank else region
            if other is not None:
                yield other

    return replace(right, regions=regions)


def at(place: int, **fields: object) -> Callable[[Region], Region]:
    """A change of the region of chunk `place`."""
    return lambda item: replace(item, **fields) if item.chunk == place else item  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (at(3, updates=3), r"output\[3\] of rank 1 expects 3 updates, but its local stores and all sends to it are 2"),
        (at(1, updates=1), r"output\[1\] of rank 1 expects 1 updates"),
        (at(3, sends=(Send(3, "output", 3),)), r"output\[3\] of rank 2 expects 2 .* are 1"),
        (at(3, sends=(Send(2, "output", 1),)), r"rank 1 sends output\[3\] to output\[1\] of rank 2, which is not tr"),
        (at(3, sends=(Send(4, "output", 3),)), r"rank 1 sends output\[3\] to output\[3\] of rank 4"),
        (at(3, updates=0), r"output\[3\] is sent by rank 1 when it is complete, but is not tracked there"),
        (at(0, updates=1), r"stores to output\[0\] leave rank 1, so it must have sends and expect no updates"),
        (at(0, sends=()), r"stores to output\[0\] leave rank 1"),
        (at(3, chunk=2), r"the wg numbers of output\[2\] would be used twice in one epoch on rank 1"),
        (at(3, chunk=4), "output has no chunk 4, of which rank 1 has a region"),
        (at(3, array="other"), "ring-reduce-scatter has no array called other"),
        (lambda item: None if item.chunk == 3 else item, r"gemm of rank 1 stores output\[3\], which has no region"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(change: Callable[[Region], Region | None], sentence: str) -> None:
    program = changed(change)
    for refuse in (check, lambda wrong: interpret(wrong, np.zeros((4, 4), np.uint16))):
        with pytest.raises(ProgramError, match=sentence) as caught:
            refuse(program)
        assert "\n" not in str(caught.value)


def test_a_kernel_that_stores_too_much_is_refused() -> None:
    right = ring_reduce_scatter(3)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        (gemm,) = right.kernels(rank)
        return (replace(gemm, parts=(*gemm.parts, Part("output", rank))),)

    with pytest.raises(ProgramError, match=r"output\[0\] of rank 0 expects 2 updates, .* are 3"):
        check(replace(right, kernels=kernels))


@pytest.mark.parametrize(("gpus", "direction"), [(1, 1), (0, 1), (4, 0), (4, 2)])
def test_impossible_rings_are_refused(gpus: int, direction: int) -> None:
    with pytest.raises(ProgramError, match=r"needs at least 2 GPUs|direction must be \+1 or -1"):
        ring_reduce_scatter(gpus, direction)


def test_programs_are_interpreted_without_the_hardware() -> None:
    """Their meaning comes from no file that the register writes come from."""
    modules = {path.stem for path in (ROOT / "sim" / "collectives").glob("*.py")} - {"__init__", "compiler"}
    assert {"interpret", "closed_forms", "known", "limits"} <= modules
    for module in modules:
        reached = modules_reached(f"sim.collectives.{module}")
        assert not [path for path in reached if path.relative_to(ROOT).parts[0] == "hw"], module
        assert not [path for path in reached if path.relative_to(ROOT).parts[:2] == ("sim", "host")], module


def test_sums_of_traffic() -> None:
    traffic = Traffic(local_stores=1, arriving_stores=2, local_updates=4, arriving_updates=8)
    assert (traffic.stores, traffic.updates, traffic.arriving) == (3, 12, 10)
