"""What happened in a run, GPU by GPU and cycle by cycle: slices, moments and counters on tracks, and what caused what.

Made of what `recorder.sv` wrote down. Times are cycles of 1 ns from the start of the measured run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.messages import Fault, Threshold, TrafficClass
from sim.collectives.compiler import NodeProgram
from sim.collectives.program import Via
from sim.models.recorded_events import STAGES
from sim.simulator.recording import Events, Recording, joined, numbered

NO_LIMIT = 64
"""Drawn for the threshold that is none: a DRAM queue holds no more."""
LIMITS = {
    Threshold.OCCUPANCY_5: 5,
    Threshold.OCCUPANCY_10: 10,
    Threshold.OCCUPANCY_30: 30,
    Threshold.NONE: NO_LIMIT,
    Threshold.AUTO: NO_LIMIT,
}
_CLASSES = [item.name for item in TrafficClass]
Tile = tuple[int, int, int]
"""Range, workgroup, wavefront."""


@dataclass(slots=True)
class Mark:
    """Something on `track` of GPU `rank` from `begin` to `end` (the same: a moment). `details` name what it concerns;
    `causes`, `effects`: numbers of the arrows that end and begin here."""

    rank: int
    track: str
    name: str
    begin: int
    end: int
    details: dict[str, int] = field(default_factory=dict)
    causes: tuple[int, ...] = ()
    effects: tuple[int, ...] = ()


@dataclass(frozen=True)
class Curve:
    """A quantity of GPU `rank` over time: from each of `cycles` on it has the value beside it."""

    rank: int
    track: str
    cycles: np.ndarray
    values: np.ndarray


@dataclass
class Timeline:
    """`marks` and `curves` of all GPUs; `arrows` is how many cause one another."""

    gpus: int
    marks: list[Mark] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    arrows: int = 0

    def on(self, rank: int, track: str) -> list[Mark]:
        """Marks of a track, or of its lanes, in order of time."""
        return [mark for mark in self.marks if mark.rank == rank and mark.track.partition(" #")[0] == track]

    def link(self, cause: Mark, effect: Mark) -> None:
        """An arrow from `cause` to `effect`."""
        self.arrows += 1
        cause.effects += (self.arrows,)
        effect.causes += (self.arrows,)


@dataclass
class Block:
    """A DMA block, and the tiles that its packets went to: peer, workgroup as the peer numbers it, and wavefront."""

    mark: Mark
    reached: set[Tile] = field(default_factory=set)


Arrival = Callable[[int, int], tuple[int, int]]
"""Which GPU of a timeline a tile arrives at that is sent to a peer with a workgroup's number, and its number there."""


def mirrored_arrival(arrays: Iterable[Sequence[int]], gpus: int) -> Arrival:
    """Where one node stands for `gpus`: what it sends to a peer arrives at it as what the rank sends that it is that
    peer of, whose chunks are so many further on. `arrays`: see `mirrored_arrays` of a session."""
    numbered = [(first, chunks, workgroups) for _, _, chunks, first, workgroups in arrays if workgroups]

    def arrival(peer: int, wg: int) -> tuple[int, int]:
        for first, chunks, workgroups in numbered:
            if first <= wg < first + chunks * workgroups:
                return 0, first + (wg - first + (gpus - peer) * workgroups) % (chunks * workgroups)
        return 0, wg

    return arrival


def timeline(
    recordings: Sequence[Recording],
    nodes: Sequence[NodeProgram],
    block_wfs: int,
    arrival: Arrival = lambda peer, wg: (peer, wg),
) -> Timeline:
    """The timeline of the GPUs that wrote `recordings`, by rank, and whose collective is `nodes`, if it is theirs and
    no kernel's; a DMA block has up to `block_wfs` WF tiles. `arrival`: of one node that stands for all
    :func:`mirrored_arrival`."""
    found = Timeline(len(recordings))
    tiles: list[dict[Tile, Mark]] = []
    rung: list[list[Mark]] = []
    blocks: list[list[Block]] = []
    for rank, recording in enumerate(recordings):
        found.marks.append(Mark(rank, "run", "measured run begins", 0, 0))
        found.marks += _moments(rank, "run", "collective done", recording["done"])
        found.marks += _workgroups(rank, recording) + _stages(rank, recording)
        tiles.append(_tiles(rank, recording))
        blocks.append(_blocks(rank, recording, _own_numbers(nodes[rank]) if nodes else {}, block_wfs))
        rung.append(_moments(rank, "doorbell", "tile committed by the doorbell", recording["doorbell"]))
        drawn = lanes(block.mark for block in blocks[-1])
        found.marks += [*tiles[-1].values(), *rung[-1], *drawn, *_packets(rank, recording), *_rare(rank, recording)]
        found.curves += _curves(rank, recording)
    for rank, own in enumerate(blocks):
        causes = tiles[rank] | {
            (mark.details["range"], mark.details["wg"], mark.details["wf"]): mark for mark in rung[rank]
        }
        _arrows(found, causes, tiles, own, block_wfs, arrival)
    return found


def _moments(rank: int, track: str, name: str, events: Events) -> list[Mark]:
    details = [dict(zip(events.fields, map(int, row))) for row in zip(*events.fields.values())]
    return [Mark(rank, track, name, int(at), int(at), about) for at, about in zip(events.cycle, details)]


def lanes(marks: Iterable[Mark]) -> list[Mark]:
    """`marks` of one track, each moved to the first lane of it that is free: what overlaps stands side by side."""
    ends: list[int] = []
    answer = sorted(marks, key=lambda mark: (mark.begin, mark.end))
    for mark in answer:
        lane = next((number for number, end in enumerate(ends) if end <= mark.begin), len(ends))
        if lane == len(ends):
            ends.append(0)
        ends[lane] = mark.end
        mark.track = f"{mark.track} #{lane}" if lane else mark.track
    return answer


def _workgroups(rank: int, recording: Recording) -> list[Mark]:
    """A slice a workgroup, on the track of its slot."""
    answer = []
    begun, retired, stage = recording["begun"], recording["retired"], recording["stage"]
    over = {
        (kernel, number): int(at)
        for at, kernel, number in zip(retired.cycle, retired.fields["kernel"], retired.fields["workgroup"])
    }
    rows = zip(begun.cycle, *(begun.fields[name] for name in ("slot", "kernel", "workgroup")))
    for at, slot, kernel, number in rows:
        end = over.get((kernel, number))
        if end is not None:
            details = {"kernel": int(kernel), "workgroup": int(number)}
            answer.append(Mark(rank, f"slot {slot:02}", f"workgroup {number}", int(at), end, details))
    began = 0
    for at, slots, what, first in zip(stage.cycle, *(stage.fields[name] for name in ("slot", "kernel", "workgroup"))):
        if STAGES[what] == "read":
            began = int(at)
        elif STAGES[what] == "over":
            answer += [
                Mark(
                    rank,
                    f"slot {slot:02}",
                    f"workgroup {first + slot}",
                    began,
                    int(at),
                    {"workgroup": int(first) + slot},
                )
                for slot in range(slots)
            ]
    return answer


def _stages(rank: int, recording: Recording) -> list[Mark]:
    """What the workgroups of a stage do together; kernels, where workgroups run on their own."""
    stage, begun, retired = recording["stage"], recording["begun"], recording["retired"]
    answer = [
        Mark(rank, "stages", STAGES[what], int(at), int(until), {"first workgroup": int(first)})
        for at, until, what, first in zip(
            stage.cycle[:-1], stage.cycle[1:], stage.fields["kernel"], stage.fields["workgroup"]
        )
        if STAGES[what] != "over"
    ]
    for kernel in np.unique(begun.fields["kernel"]):
        first = begun.cycle[begun.fields["kernel"] == kernel]
        last = retired.cycle[retired.fields["kernel"] == kernel]
        if len(last):
            answer.append(Mark(rank, "stages", f"kernel {kernel}", int(first[0]), int(last[-1])))
    return lanes(answer)


def _tiles(rank: int, recording: Recording) -> dict[Tile, Mark]:
    """A moment for each WF tile: its last commit."""
    commits = joined(recording, "commit")
    names = ("range", "wg", "wf")
    key = commits.fields["range"] << 24 | commits.fields["wg"] << 4 | commits.fields["wf"]
    _, last_of_reversed, count = np.unique(key[::-1], return_index=True, return_counts=True)
    answer = {}
    for place, sectors in zip(len(key) - 1 - last_of_reversed, count):
        tile = tuple(int(commits.fields[name][place]) for name in names)
        at = int(commits.cycle[place])
        details = dict(zip(names, tile)) | {"sectors": int(sectors)}
        answer[tile] = Mark(rank, "last commits", f"WG {tile[1]} WF {tile[2]}", at, at, details)
    return answer  # type: ignore[return-value]


def _own_numbers(node: NodeProgram) -> dict[tuple[int, int], list[int]]:
    """By peer and workgroup there: the workgroups here whose blocks are sent to that one."""
    answer: dict[tuple[int, int], list[int]] = defaultdict(list)
    for item in node.ranges:
        if item.region.via is Via.DMA:
            for send, there in zip(item.region.sends, item.wg_there, strict=True):
                for tile in range(item.tiling.workgroups):
                    answer[send.peer, there + tile].append(item.wg_base + tile)
    return answer


def _blocks(
    rank: int, recording: Recording, own_numbers: Mapping[tuple[int, int], Sequence[int]], block_wfs: int
) -> list[Block]:
    """A slice a DMA block, from its arrival at the engine to the last flit of its packets in any lane of the memory
    side; a block of which nothing left has none. A packet, which has the number of a tile at the peer, is of the block
    that came last with a tile that is sent there (`own_numbers`)."""
    block = recording["block"]
    blocks: list[Block] = []
    of_tile: dict[tuple[int, int], list[Block]] = defaultdict(list)
    for at, of, wg, wf in zip(block.cycle.tolist(), *(block.fields[name].tolist() for name in ("range", "wg", "wf"))):
        details = {"range": of, "wg": wg, "wf": wf}
        blocks.append(Block(Mark(rank, "DMA blocks", f"block WG {wg} WF {wf}", at, at, details)))
        for tile in range(wf, wf + block_wfs):
            of_tile[wg, tile].append(blocks[-1])
    for port, sent in numbered(recording, "sent").items():
        ends = recording[f"sent_end{port}"].cycle.tolist()
        fields = (sent.fields[name].tolist() for name in ("rank", "wg", "wf"))
        for at, until, peer, there, wf in zip(sent.cycle.tolist(), ends, *fields):
            came = [
                item for wg in own_numbers.get((peer, there), ()) for item in of_tile[wg, wf] if item.mark.begin < at
            ]
            if came:
                # Blocks of a range may have fewer tiles than `block_wfs`: the one that begins nearest has it.
                own = max(came, key=lambda item: (item.mark.details["wf"], item.mark.begin))
                own.mark.end = max(own.mark.end, until + 1)
                own.reached.add((peer, there, wf))
    return [item for item in blocks if item.reached]


def _packets(rank: int, recording: Recording) -> list[Mark]:
    """A slice a packet that leaves, a moment for one that arrives: most of a timeline, so their names say all."""
    answer = []
    for port, sent in numbered(recording, "sent").items():
        received = recording[f"received{port}"]
        fields = (sent.fields[name].tolist() for name in ("rank", "traffic_class", "wg"))
        ends = recording[f"sent_end{port}"].cycle.tolist()
        for at, until, peer, kind, wg in zip(sent.cycle.tolist(), ends, *fields):
            answer.append(Mark(rank, f"link {port} out", f"{_CLASSES[kind]} WG {wg} to {peer}", at, until + 1))
        fields = (received.fields[name].tolist() for name in ("rank", "wg"))
        for at, peer, wg in zip(received.cycle.tolist(), *fields):
            answer.append(Mark(rank, f"link {port} in", f"WG {wg} from {peer}", at, at))
    return answer


def _rare(rank: int, recording: Recording) -> list[Mark]:
    answer = _moments(rank, "gates", "WG launch", recording["launch"])
    answer += _moments(rank, "Tracker", "evicted", recording["evicted"])
    answer += _moments(rank, "Tracker", "fetched again", recording["fetched"])
    for at, value in zip(recording["fault"].cycle, recording["fault"].fields["value"]):
        name = Fault(int(value) & 15).name
        answer.append(Mark(rank, "faults", name, int(at), int(at), {"link": int(value) >> 4 & 1}))
    return answer


def _curves(rank: int, recording: Recording) -> list[Curve]:
    answer = []
    for channel, queue in numbered(recording, "queue").items():
        limits = np.array([LIMITS[Threshold(int(value))] for value in queue.fields["threshold"]], np.int64)
        for track, values in (("DRAM queue", queue.fields["occupancy"]), ("threshold", limits)):
            changed = np.concatenate([[True], np.diff(values) != 0]) if len(values) else np.zeros(0, bool)
            answer.append(Curve(rank, f"{track} {channel}", queue.cycle[changed], values[changed]))
    return answer


def _arrows(
    found: Timeline,
    causes: Mapping[Tile, Mark],
    tiles: Sequence[Mapping[Tile, Mark]],
    blocks: Sequence[Block],
    block_wfs: int,
    arrival: Arrival,
) -> None:
    """From what completed each of a block's tiles, its last commit or a doorbell, to the block, and from there to the
    tiles that it went to."""
    at_peer: list[dict[tuple[int, int], list[Mark]]] = []
    for own in tiles:
        by_name: dict[tuple[int, int], list[Mark]] = defaultdict(list)
        for (_, wg, wf), mark in own.items():
            by_name[wg, wf].append(mark)
        at_peer.append(by_name)
    for block in blocks:
        mark = block.mark
        first = mark.details["wf"]
        for wf in range(first, first + block_wfs):
            cause = causes.get((mark.details["range"], mark.details["wg"], wf))
            if cause is not None:
                found.link(cause, mark)
        for peer, wg, wf in sorted(block.reached):
            rank, number = arrival(peer, wg)
            later = [arrived for arrived in at_peer[rank][number, wf] if arrived.end >= mark.begin]
            if later:
                found.link(mark, min(later, key=lambda arrived: arrived.end))
