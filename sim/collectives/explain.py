"""A program as text: what each rank's regions do with an access, when they are complete and what follows, and what the
rank moves by its closed form."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from sim.collectives.check import check, check_links, depends_on_order, regions_of, stores_of
from sim.collectives.limits import needs_of
from sim.collectives.program import Kernel, Part, Program, Region, Traffic, Via
from sim.topologies.topology import Routes

HEADINGS = ("region", "a local store", "complete after", "and then")


def explain(program: Program, topology: Routes, ranks: Iterable[int]) -> Iterator[str]:
    """Lines about `program` and about each of `ranks`.

    Raises :class:`sim.collectives.program.ProgramError` for a program that contradicts itself or needs a link that
    `topology` has not.
    """
    check(program)
    check_links(program, topology)
    needs = needs_of(program)
    ports = f"{topology.ports} link port{'s' * (topology.ports > 1)} a GPU"
    yield f"{program.name} on {program.gpus} GPUs, {topology.name}: {ports}"
    for array in program.arrays:
        reduced = f", {array.op}" if any(_updated(program, array.name)) else ""
        yield f"  array {array.name}: {array.chunks} chunks, {array.dtype}{reduced}"
    yield (
        f"  takes of a node: {needs.ranges} ranges, {needs.sends} sends, {needs.doorbells} doorbells, "
        f"{needs.ports} peers"
    )
    if depends_on_order(program):
        yield "  more than two addends meet in a chunk: a rounded sum depends on the order in which they arrive"
    for rank in ranks:
        yield ""
        yield from _rank_lines(program, topology, rank)


def _updated(program: Program, array: str) -> Iterator[bool]:
    for rank in range(program.gpus):
        for region in program.regions(rank):
            yield region.array == array and region.store.value == "update"


def _rank_lines(program: Program, topology: Routes, rank: int) -> Iterator[str]:
    yield f"rank {rank}"
    lies = program.lies(rank)
    if lies:
        yield f"  in memory before: {_list(lies)}"
    for kernel in program.kernels(rank):
        yield f"  kernel {kernel.name} stores {_stores(kernel)}"
    stored = stores_of(program, rank)
    rows = [_row(topology, rank, region, stored[part]) for part, region in regions_of(program, rank).items()]
    yield from _table(HEADINGS, rows)
    yield f"  left with: {_list(program.result(rank))}"
    form = program.closed_form(rank)
    names = [item.name for item in fields(Traffic)]
    counts = [[f"{name}, chunks", *(str(getattr(moved, item)) for item in names)] for name, moved in form.items()]
    yield from _table(("moved of", *(name.replace("_", " ") for name in names)), counts)


def _list(parts: Sequence[Part]) -> str:
    return ", ".join(map(str, parts)) or "nothing"


def _stores(kernel: Kernel) -> str:
    splits = f", each {kernel.splits} times" if kernel.splits > 1 else ""
    if not kernel.gates:
        return _list(kernel.parts) + splits
    reach = "its tile row" if kernel.fine else "all"
    reach = f"each of {kernel.slices} slices of {reach}" if kernel.slices > 1 else reach
    gates = (
        f"{part} after {reach} of {_list(kernel.awaited(part))}" if kernel.awaited(part) else str(part)
        for part in kernel.parts
    )
    return ", ".join(gates) + splits


def _row(topology: Routes, rank: int, region: Region, stored: int) -> tuple[str, ...]:
    sends = ", ".join(
        f"rank {send.peer} {send.part} as {send.access.value} by port {topology.port(rank, send.peer)}"
        for send in region.sends
    )
    if region.via is Via.STORE:
        return str(region.part), f"goes to {sends}", "", ""
    store = ("updates it" if region.store.value == "update" else "replaces it") if stored else ""
    if not region.updates:
        return str(region.part), store, "not tracked", ""
    complete = (
        "its doorbell" if region.doorbell else f"{region.updates} {'access' if region.updates == 1 else 'accesses'}"
    )
    then = ["a launch event"] if region.launch else []
    then += [f"DMA to {sends}"] if sends else []
    return str(region.part), store, complete, ", ".join(then) or "done"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table whose columns are as wide as they must be."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
