"""A timeline as a file for Perfetto (https://ui.perfetto.dev): a process a GPU, a track a row, arrows to effects.

Written with the protobuf messages of the package `perfetto`. One cycle is one nanosecond.
"""

from pathlib import Path
from typing import IO, Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackDescriptor, TrackEvent

from sim.experiments.timeline import Mark, Timeline
from sim.files import replaced

SEQUENCE = 1
"""Perfetto's name for what one writer writes."""
FIRST_TRACK, FIRST_CURVE = 1_000, 100_000
"""Numbers of tracks; those of GPUs are below."""
AT_A_TIME = 1000
"""Packets that are written together."""
BEFORE = 1000
"""The measured run begins at this time, so that a viewer has room before it."""


def write_perfetto(path: Path, timeline: Timeline, title: str) -> None:
    """Write `timeline` of run `title`, all of it or nothing."""
    with replaced(path) as draft, draft.open("wb") as file:
        stream = _Stream(file)
        _write_events(stream, timeline, _write_tracks(stream, timeline, title))
        stream.flush()


class _Stream:
    """Packets written to `file`, many at a time: traces that follow one another in a file are one."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._trace = Trace()

    def packet(self) -> Any:
        """The next packet, empty."""
        if len(self._trace.packet) == AT_A_TIME:
            self.flush()
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = SEQUENCE
        return packet

    def flush(self) -> None:
        """Write what is not yet written."""
        self._file.write(self._trace.SerializeToString())
        self._trace = Trace()


def _write_tracks(stream: _Stream, timeline: Timeline, title: str) -> dict[tuple[int, str], int]:
    """Describe every process and track; the numbers of the tracks by GPU and name."""
    for rank in range(timeline.gpus):
        packet = stream.packet()
        if rank == 0:
            packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        described = packet.track_descriptor
        described.uuid = _process(rank)
        described.process.pid = _process(rank)
        described.process.process_name = f"GPU {rank}, {title}"
        described.child_ordering = TrackDescriptor.LEXICOGRAPHIC
    rows = sorted({(mark.rank, mark.track) for mark in timeline.marks})
    tracks = {key: FIRST_TRACK + number for number, key in enumerate(rows)}
    for (rank, name), track in tracks.items():
        _describe(stream, track, rank, name)
    for number, curve in enumerate(timeline.curves):
        _describe(stream, FIRST_CURVE + number, curve.rank, curve.track).counter.SetInParent()
    return tracks


def _write_events(stream: _Stream, timeline: Timeline, tracks: dict[tuple[int, str], int]) -> None:
    # What a viewer reads is in order of time on each track: an end before the begin of what follows.
    moves: list[tuple[int, int, int, int, int, Mark | None]] = []
    for number, mark in enumerate(timeline.marks):
        track = tracks[mark.rank, mark.track]
        if mark.begin == mark.end:
            moves.append((mark.begin, 1, track, number, TrackEvent.TYPE_INSTANT, mark))
        else:
            moves.append((mark.begin, 2, track, number, TrackEvent.TYPE_SLICE_BEGIN, mark))
            moves.append((mark.end, 0, track, number, TrackEvent.TYPE_SLICE_END, None))
    moves.sort()
    for at, _, track, _, kind, about in moves:
        event = _event(stream, at, track, kind)
        if about is not None:
            _tell(event, about)
    for number, curve in enumerate(timeline.curves):
        for at, value in zip(curve.cycles.tolist(), curve.values.tolist()):
            _event(stream, at, FIRST_CURVE + number, TrackEvent.TYPE_COUNTER).counter_value = value


def _process(rank: int) -> int:
    """The number of a GPU's own track."""
    return rank + 1


def _describe(stream: _Stream, track: int, rank: int, name: str) -> Any:
    """Describe a track of GPU `rank`; the description."""
    described = stream.packet().track_descriptor
    described.uuid, described.parent_uuid, described.name = track, _process(rank), name
    return described


def _event(stream: _Stream, at: int, track: int, kind: int) -> Any:
    packet = stream.packet()
    packet.timestamp = at + BEFORE
    event = packet.track_event
    event.type, event.track_uuid = kind, track
    return event


def _tell(event: Any, mark: Mark) -> None:
    """Name and details of `mark`, and its arrows."""
    event.name = mark.name
    if mark.effects:
        event.flow_ids.extend(mark.effects)
    if mark.causes:
        event.terminating_flow_ids.extend(mark.causes)
    for name, value in mark.details.items():
        event.debug_annotations.add(name=name, int_value=value)
