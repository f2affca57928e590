"""What happened in a run, GPU by GPU and cycle by cycle: slices, moments and counters on tracks, and what caused what.

Made of what `recorder.sv` wrote down. Times are cycles of 1 ns from the start of the measured run.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.messages import Fault, Threshold, TrafficClass
from sim.models.recorded_events import STAGES
from sim.simulator.recording import Events, Recording, joined

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


@dataclass
class Mark:
    """Something on `track` of GPU `rank` from `begin` to `end` (the same: a moment). `details` name what it concerns;
    `causes`, `effects`: numbers of the arrows that end and begin here."""

    rank: int
    track: str
    name: str
    begin: int
    end: int
    details: dict[str, int] = field(default_factory=dict)
    causes: list[int] = field(default_factory=list)
    effects: list[int] = field(default_factory=list)


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
        cause.effects.append(self.arrows)
        effect.causes.append(self.arrows)


def timeline(recordings: Sequence[Recording], block_wfs: int) -> Timeline:
    """The timeline of the GPUs that wrote `recordings`, by rank; a DMA block has up to `block_wfs` WF tiles."""
    found = Timeline(len(recordings))
    tiles, blocks = [], []
    for rank, recording in enumerate(recordings):
        found.marks.append(Mark(rank, "run", "measured run begins", 0, 0))
        found.marks += _moments(rank, "run", "collective done", recording["done"])
        found.marks += _workgroups(rank, recording) + _stages(rank, recording)
        tiles.append(_tiles(rank, recording))
        blocks.append(_blocks(rank, recording, block_wfs))
        found.marks += [*tiles[-1].values(), *blocks[-1], *_packets(rank, recording), *_rare(rank, recording)]
        found.curves += _curves(rank, recording)
    for rank in range(len(recordings)):
        _arrows(found, recordings[rank], rank, tiles, blocks[rank], block_wfs)
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


def _blocks(rank: int, recording: Recording, block_wfs: int) -> list[Mark]:
    """A slice a DMA block, from its arrival at the engine to the last flit of its packets in any lane of the memory
    side; a block of which nothing left has none. A packet is of the block that came last with its tile."""
    block = recording["block"]
    marks: list[Mark] = []
    of_tile: dict[tuple[int, int], list[Mark]] = defaultdict(list)
    for at, of, wg, wf in zip(block.cycle.tolist(), *(block.fields[name].tolist() for name in ("range", "wg", "wf"))):
        details = {"range": of, "wg": wg, "wf": wf}
        marks.append(Mark(rank, "DMA blocks", f"block WG {wg} WF {wf}", at, at, details))
        for tile in range(wf, wf + block_wfs):
            of_tile[wg, tile].append(marks[-1])
    for port in _ports_out(recording):
        sent = recording[f"sent{port}"]
        ends = recording[f"sent_end{port}"].cycle.tolist()
        for at, until, wg, wf in zip(sent.cycle.tolist(), ends, *(sent.fields[name].tolist() for name in ("wg", "wf"))):
            came = [mark for mark in of_tile[wg, wf] if mark.begin < at]
            if came:
                # Blocks of a range may have fewer tiles than `block_wfs`: the one that begins nearest has it.
                own = max(came, key=lambda mark: (mark.details["wf"], mark.begin))
                own.end = max(own.end, until + 1)
    return lanes(mark for mark in marks if mark.end > mark.begin)


def _ports_out(recording: Recording) -> list[str]:
    """Numbers of the link ports, and in each of its lanes, of which packets that left were written down."""
    return [key[4:] for key in recording if key.startswith("sent") and key[4:].isdigit()]


def _packets(rank: int, recording: Recording) -> list[Mark]:
    """A slice a packet that leaves, a moment for one that arrives: most of a timeline, so their names say all."""
    answer = []
    for port in _ports_out(recording):
        sent, received = recording[f"sent{port}"], recording[f"received{port}"]
        fields = (sent.fields[name].tolist() for name in ("rank", "traffic_class", "wg"))
        ends = recording[f"sent_end{port}"].cycle.tolist()
        for at, until, peer, kind, wg in zip(sent.cycle.tolist(), ends, *fields):
            answer.append(Mark(rank, f"link {port} out", f"{_CLASSES[kind]} WG {wg} to {peer}", at, until + 1))
        fields = (received.fields[name].tolist() for name in ("rank", "wg"))
        for at, peer, wg in zip(received.cycle.tolist(), *fields):
            answer.append(Mark(rank, f"link {port} in", f"WG {wg} from {peer}", at, at))
    return answer


def _rare(rank: int, recording: Recording) -> list[Mark]:
    answer = _moments(rank, "doorbell", "tile committed by the doorbell", recording["doorbell"])
    answer += _moments(rank, "gates", "WG launch", recording["launch"])
    answer += _moments(rank, "Tracker", "evicted", recording["evicted"])
    answer += _moments(rank, "Tracker", "fetched again", recording["fetched"])
    for at, value in zip(recording["fault"].cycle, recording["fault"].fields["value"]):
        name = Fault(int(value) & 15).name
        answer.append(Mark(rank, "faults", name, int(at), int(at), {"link": int(value) >> 4 & 1}))
    return answer


def _curves(rank: int, recording: Recording) -> list[Curve]:
    answer = []
    for name in (key for key in recording if key.startswith("queue")):
        queue, channel = recording[name], name.removeprefix("queue")
        limits = np.array([LIMITS[Threshold(int(value))] for value in queue.fields["threshold"]], np.int64)
        for track, values in (("DRAM queue", queue.fields["occupancy"]), ("threshold", limits)):
            changed = np.concatenate([[True], np.diff(values) != 0]) if len(values) else np.zeros(0, bool)
            answer.append(Curve(rank, f"{track} {channel}", queue.cycle[changed], values[changed]))
    return answer


def _arrows(
    found: Timeline,
    recording: Recording,
    rank: int,
    tiles: Sequence[dict[Tile, Mark]],
    blocks: Sequence[Mark],
    block_wfs: int,
) -> None:
    """From the last commit of each of a block's tiles to the block, and from there to the same tiles' at the peer."""
    sent = joined(recording, "sent")
    peers: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for at, wg, wf, peer in zip(sent.cycle, *(sent.fields[name] for name in ("wg", "wf", "rank"))):
        peers[int(wg), int(wf)].append((int(at), int(peer)))
    at_peer: list[dict[tuple[int, int], list[Mark]]] = []
    for own in tiles:
        by_name: dict[tuple[int, int], list[Mark]] = defaultdict(list)
        for (_, wg, wf), mark in own.items():
            by_name[wg, wf].append(mark)
        at_peer.append(by_name)
    for block in blocks:
        wg, first = block.details["wg"], block.details["wf"]
        for wf in range(first, first + block_wfs):
            tile = tiles[rank].get((block.details["range"], wg, wf))
            if tile is None:
                continue
            found.link(tile, block)
            peer = next((peer for at, peer in peers[wg, wf] if block.begin <= at <= block.end), None)
            # One node that stands for all has its neighbour's tiles itself.
            if peer is None or len(tiles) == 1 or peer >= len(tiles):
                continue
            later = [mark for mark in at_peer[peer][wg, wf] if mark.end >= block.begin]
            if later:
                found.link(block, min(later, key=lambda mark: mark.end))
