"""What no program may say: contradictions that would hang a ring, or end it with a wrong sum."""

from collections import Counter
from functools import lru_cache

from sim.collectives.program import Part, Program, ProgramError, Region, Via


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
    and by none that is not counted.

    What a program needs of the hardware is the compiler's to check (:mod:`sim.collectives.compiler`).
    """
    ranks = range(program.gpus)
    regions = {rank: regions_of(program, rank) for rank in ranks}
    met: Counter[tuple[int, Part]] = Counter()
    for rank in ranks:
        for kernel in program.kernels(rank):
            for part in kernel.parts:
                if part not in regions[rank]:
                    raise ProgramError(f"kernel {kernel.name} of rank {rank} stores {part}, which has no region there")
                met[rank, part] += 1
        for part, region in regions[rank].items():
            if region.sends and region.via is Via.DMA and not region.updates:
                raise ProgramError(f"{part} is sent by rank {rank} when it is complete, but is not tracked there")
            if region.via is Via.STORE and (region.updates or not region.sends):
                raise ProgramError(f"stores to {part} leave rank {rank}, so it must have sends and expect no updates")
    kept = dict(met)
    for rank in ranks:
        for part, region in regions[rank].items():
            for send in region.sends:
                target = regions[send.peer].get(send.part) if send.peer in ranks else None
                if target is None or not target.updates:
                    raise ProgramError(
                        f"rank {rank} sends {part} to {send.part} of rank {send.peer}, which is not tracked there"
                    )
                met[send.peer, send.part] += kept.get((rank, part), 0) if region.via is Via.STORE else 1
    for rank in ranks:
        for part, region in regions[rank].items():
            if region.updates and met[rank, part] != region.updates:
                raise ProgramError(
                    f"{part} of rank {rank} expects {region.updates} updates, but its local stores and all sends to it "
                    f"are {met[rank, part]}"
                )
