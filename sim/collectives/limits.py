"""What a program takes of a node, and whether a node has it."""

from collections.abc import Mapping
from dataclasses import dataclass

from sim.collectives.check import check
from sim.collectives.cut import Cut
from sim.collectives.program import Program, ProgramError, Region
from sim.topologies.topology import Routes


@dataclass(frozen=True)
class Limits:
    """What a node has: entries of the range table and of the table of sends; sends that one block may have; bits of a
    WG number and of the bytes counted for a WF tile; link ports; whether a send may add an offset to WG numbers, and
    whether doorbells can be rung."""

    ranges: int
    sends: int
    sends_of_a_block: int
    wg_bits: int
    count_bits: int
    ports: int
    wg_offset: bool = True
    doorbell: bool = True


@dataclass(frozen=True)
class Needs:
    """What a program takes of the node that needs the most of it: `ranges`; `sends` of all regions, and of one; `ports`
    that lead to different peers; `doorbells`; and whether `wg_offset` is needed."""

    ranges: int
    sends: int
    sends_of_a_block: int
    ports: int
    doorbells: int
    wg_offset: bool


def needs_of(program: Program) -> Needs:
    """What `program` takes of a node."""
    ranks = [list(program.regions(rank)) for rank in range(program.gpus)]
    return Needs(
        ranges=max(map(len, ranks)),
        sends=max(sum(len(region.sends) for region in regions) for regions in ranks),
        sends_of_a_block=max(len(region.sends) for regions in ranks for region in regions),
        ports=max(len({send.peer for region in regions for send in region.sends}) for regions in ranks),
        doorbells=max(sum(region.doorbell for region in regions) for regions in ranks),
        wg_offset=any(_elsewhere(region) for regions in ranks for region in regions),
    )


def _elsewhere(region: Region) -> bool:
    return any(send.part != region.part for send in region.sends)


def check_limits(program: Program, limits: Limits, topology: Routes, cuts: Mapping[str, Cut]) -> None:
    """Raise :class:`ProgramError`, one sentence, when `program`, its chunks cut as `cuts` says, takes more of a node
    than `limits` allow, or `topology` has more ports."""
    check(program)
    needs = needs_of(program)
    for name, needed, there in (
        ("ranges", needs.ranges, limits.ranges),
        ("sends", needs.sends, limits.sends),
        ("sends of one block", needs.sends_of_a_block, limits.sends_of_a_block),
        ("link ports", topology.ports, limits.ports),
    ):
        if needed > there:
            raise ProgramError(f"{program.name} on {program.gpus} GPUs needs {needed} {name}, a node has {there}")
    if needs.doorbells and not limits.doorbell:
        raise ProgramError(f"{program.name} needs {needs.doorbells} doorbells, a node has none")
    if needs.wg_offset and not limits.wg_offset:
        raise ProgramError(f"{program.name} sends into chunks with other wg numbers, and a node cannot change them")
    numbers = sum(array.chunks * cuts[array.name].workgroups for array in program.arrays)
    if numbers > 1 << limits.wg_bits:
        raise ProgramError(f"{program.name} needs {numbers} wg numbers, a node has {1 << limits.wg_bits}")
    updates = max((region.updates for rank in range(program.gpus) for region in program.regions(rank)), default=0)
    counted = updates * max(cuts[array.name].wf_tile_bytes for array in program.arrays)
    if counted >= 1 << limits.count_bits:
        raise ProgramError(
            f"{program.name} counts {counted} bytes for a WF tile, a node counts to {(1 << limits.count_bits) - 1}"
        )
