"""What no program may say: contradictions that would hang the ranks, or end with a wrong result; and links that a
topology has not."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from sim.collectives.program import Access, Does, Kernel, Part, Program, ProgramError, Region, Via
from sim.topologies.topology import Routes

Regions = dict[int, dict[Part, Region]]
Node = tuple[int, str, Part]
"""Something that happens once on a rank: a part is complete (kernel ""), or a kernel of that name has stored it."""


def regions_of(program: Program, rank: int) -> dict[Part, Region]:
    """The regions of `rank` by chunk. Raises :class:`ProgramError` when there are two for one chunk, or none can be."""
    found: dict[Part, Region] = {}
    for region in program.regions(rank):
        part = region.part
        if not 0 <= region.chunk < program.array(region.array).chunks:
            raise ProgramError(f"{region.array} has no chunk {region.chunk}, of which rank {rank} has a region")
        if part in found:
            raise ProgramError(f"the wg numbers of {part} would be used twice in one epoch on rank {rank}")
        found[part] = region
    return found


@lru_cache
def check(program: Program) -> None:
    """Raise :class:`ProgramError`, one sentence, unless every tracked chunk is met by as many accesses as it expects,
    and by none that is not counted, and every gate opens.

    What a program needs of the hardware is checked elsewhere (:mod:`sim.collectives.limits`, and the compiler).
    """
    regions = {rank: regions_of(program, rank) for rank in range(program.gpus)}
    for rank, own in regions.items():
        for kernel in program.kernels(rank):
            _check_kernel(kernel, rank, own)
        for region in own.values():
            _check_region(program, region, rank)
    _check_updates(program, regions)
    _check_order(program, regions)


def _check_kernel(kernel: Kernel, rank: int, regions: dict[Part, Region]) -> None:
    if kernel.slices > 1 and not (kernel.fine and kernel.does is Does.MULTIPLY and kernel.splits == 1):
        raise ProgramError(
            f"kernel {kernel.name} reads {kernel.slices} slices as they arrive, so it must multiply, have fine gates, "
            "and not split its depth otherwise"
        )
    for part in kernel.parts:
        if part not in regions:
            raise ProgramError(f"kernel {kernel.name} of rank {rank} stores {part}, which has no region there")
    for part in (*kernel.gates, *kernel.column_gates):
        if part not in kernel.parts:
            raise ProgramError(f"kernel {kernel.name} of rank {rank} has a gate before {part}, which it does not store")
        for gate in kernel.awaited(part):
            region = regions.get(gate)
            if region is None or not region.updates or not region.launch:
                raise ProgramError(
                    f"kernel {kernel.name} of rank {rank} waits for {gate}, whose gate can never open: it raises no "
                    "launch events there"
                )


def _check_region(program: Program, region: Region, rank: int) -> None:
    part = region.part
    if region.sends and region.via is Via.DMA and not region.updates:
        raise ProgramError(f"{part} is sent by rank {rank} when it is complete, but is not tracked there")
    if region.via is Via.STORE and (region.updates or not region.sends):
        raise ProgramError(f"stores to {part} leave rank {rank}, so it must have sends and expect no updates")
    if region.via is Via.STORE and len(region.sends) > 1:
        raise ProgramError(f"each store to {part} leaves rank {rank}, so it goes to one peer, not {len(region.sends)}")
    if region.doorbell and not region.updates:
        raise ProgramError(f"{part} of rank {rank} has a doorbell, but is not tracked there")
    if region.doorbell and part not in program.lies(rank):
        raise ProgramError(f"the doorbell of {part} is rung on rank {rank}, but no data lies there")


def stores_of(program: Program, rank: int) -> Counter[Part]:
    """How often the kernels of `rank` store each part."""
    stored: Counter[Part] = Counter()
    for kernel in program.kernels(rank):
        for part in kernel.parts:
            stored[part] += kernel.splits
    return stored


def _check_updates(program: Program, regions: Regions) -> None:
    stored = {rank: stores_of(program, rank) for rank in regions}
    met = Counter({(rank, part): count for rank, parts in stored.items() for part, count in parts.items()})
    for rank, own in regions.items():
        for part, region in own.items():
            for send in region.sends:
                if send.peer == rank:
                    raise ProgramError(f"rank {rank} sends {part} to itself, and no link leads there")
                target = regions[send.peer].get(send.part) if send.peer in regions else None
                if target is None or not target.updates:
                    raise ProgramError(
                        f"rank {rank} sends {part} to {send.part} of rank {send.peer}, which is not tracked there"
                    )
                met[send.peer, send.part] += stored[rank][part] if region.via is Via.STORE else 1
    for rank, own in regions.items():
        for part, region in own.items():
            if region.doorbell and met[rank, part]:
                raise ProgramError(
                    f"{part} of rank {rank} is complete by its doorbell, but meets {met[rank, part]} accesses as well"
                )
            if region.updates and not region.doorbell and met[rank, part] != region.updates:
                raise ProgramError(
                    f"{part} of rank {rank} expects {region.updates} updates, but its local stores and all sends to it "
                    f"are {met[rank, part]}"
                )


def _check_order(program: Program, regions: Regions) -> None:
    """Refuse what waits for itself: workgroups are dispatched in order, and one that waits holds up those after it."""
    after: dict[Node, set[Node]] = {}

    def add(node: Node, *earlier: Node) -> None:
        after.setdefault(node, set()).update(earlier)

    for rank, own in regions.items():
        for kernel in program.kernels(rank):
            before: tuple[Node, ...] = ()
            for part in kernel.parts:
                node = rank, kernel.name, part
                add(node, *before, *((rank, "", gate) for gate in kernel.awaited(part)))
                if own[part].updates:
                    add((rank, "", part), node)
                before = (node,)
        for region in own.values():
            for send in region.sends:
                add((send.peer, "", send.part), *_origins(program, rank, region))
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        cycle: list[Node] = error.args[1]
        at = next((index for index in range(1, len(cycle)) if cycle[index][1] and not cycle[index - 1][1]), None)
        if at is None:
            rank, _, part = cycle[0]
            raise ProgramError(f"{part} of rank {rank} can never be complete: it waits for itself") from error
        (rank, name, part), gate = cycle[at], cycle[at - 1][2]
        raise ProgramError(
            f"the gate {gate} before {part} in kernel {name} of rank {rank} can never open: it waits for what comes "
            "after it"
        ) from error


def _origins(program: Program, rank: int, region: Region) -> Iterator[Node]:
    """What must have happened on `rank` before `region` is sent."""
    if region.via is Via.DMA:
        yield rank, "", region.part
        return
    for kernel in program.kernels(rank):
        if region.part in kernel.parts:
            yield rank, kernel.name, region.part


def check_links(program: Program, topology: Routes) -> None:
    """Raise :class:`ProgramError` unless `topology` has a link for every send of `program`."""
    for rank in range(program.gpus):
        for region in program.regions(rank):
            for send in region.sends:
                if topology.port(rank, send.peer) is None:
                    raise ProgramError(
                        f"{program.name} sends from rank {rank} to rank {send.peer}, but the {topology.name} has no "
                        "link there"
                    )


def check_alike(program: Program) -> None:
    """Raise :class:`ProgramError` unless every rank does what rank 0 does, to peers and chunks as much further on as it
    is itself, so that one rank can stand for all. Ranks that send nothing need not be alike."""
    first = regions_of(program, 0)
    if not any(region.sends for region in first.values()):
        return
    for rank in range(1, program.gpus):
        regions = {_moved(program, part, rank): _region_moved(program, own, rank) for part, own in first.items()}
        kernels = [_kernel_moved(program, kernel, rank) for kernel in program.kernels(0)]
        if regions != regions_of(program, rank) or kernels != [
            _kernel_moved(program, kernel, 0) for kernel in program.kernels(rank)
        ]:
            raise ProgramError(
                f"one rank of {program.name} cannot stand for all: rank {rank} does not do what rank 0 does with "
                f"chunks {rank} further on"
            )


def _moved(program: Program, part: Part, rank: int) -> Part:
    return Part(part.array, program.array(part.array).further(part.chunk, rank))


def _region_moved(program: Program, region: Region, rank: int) -> Region:
    sends = tuple(
        replace(send, peer=(send.peer + rank) % program.gpus, chunk=_moved(program, send.part, rank).chunk)
        for send in region.sends
    )
    return replace(region, chunk=_moved(program, region.part, rank).chunk, sends=sends)


def _kernel_moved(program: Program, kernel: Kernel, rank: int) -> Kernel:
    gates, column_gates = (
        {
            _moved(program, part, rank): tuple(sorted(_moved(program, gate, rank) for gate in waited))
            for part, waited in side.items()
        }
        for side in (kernel.gates, kernel.column_gates)
    )
    parts = tuple(_moved(program, part, rank) for part in kernel.parts)
    return replace(kernel, parts=parts, gates=gates, column_gates=column_gates)


def depends_on_order(program: Program) -> bool:
    """Whether the result may depend on the order in which accesses arrive: a chunk is met by more than two addends
    that are rounded."""
    return any(
        region.updates > 2
        and (region.store is Access.UPDATE)
        and program.array(region.array).op == "add"
        and program.array(region.array).dtype != "int32"
        for rank in range(program.gpus)
        for region in program.regions(rank)
    )
