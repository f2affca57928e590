"""A timeline as a file for Perfetto (https://ui.perfetto.dev): a process a GPU, a track a row, arrows to effects.

Written with the protobuf messages of the package `perfetto`. One cycle is one nanosecond.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from sim.experiments.timeline import Mark, Timeline
from sim.files import replaced

SEQUENCE = 1
"""Perfetto's name for what one writer writes."""
BEFORE = 1000
"""The measured run begins at this time, so that a viewer has room before it."""


def write_perfetto(path: Path, timeline: Timeline, title: str) -> None:
    """Write `timeline` of run `title`, all of it or nothing."""
    with replaced(path) as draft, draft.open("wb") as file:
        builder = StreamingTraceProtoBuilder(file)
        for packet in _packets(timeline, title):
            builder.write_packet(packet)


def _packets(timeline: Timeline, title: str) -> Iterator[Any]:
    tracks: dict[tuple[int, str], int] = {}
    for rank in range(timeline.gpus):
        yield _described(_process(rank), process=rank, name=f"GPU {rank}, {title}", first=rank == 0)
    rows = {(mark.rank, mark.track) for mark in timeline.marks}
    for number, key in enumerate(sorted(rows)):
        tracks[key] = 1000 + number
        yield _described(tracks[key], _process(key[0]), name=key[1])
    for number, curve in enumerate(timeline.curves):
        yield _described(100_000 + number, _process(curve.rank), name=curve.track, counter=True)
    # What a viewer reads is in order of time on each track: an end before the begin of what follows.
    moves: list[tuple[int, int, int, int, Mark | None]] = []
    for mark in timeline.marks:
        track = tracks[mark.rank, mark.track]
        if mark.begin == mark.end:
            moves.append((mark.begin, 1, track, TrackEvent.TYPE_INSTANT, mark))
        else:
            moves.append((mark.begin, 2, track, TrackEvent.TYPE_SLICE_BEGIN, mark))
            moves.append((mark.end, 0, track, TrackEvent.TYPE_SLICE_END, None))
    moves.sort(key=lambda move: move[:3])
    for at, _, track, kind, about in moves:
        yield _event(at, track, kind, about)
    for number, curve in enumerate(timeline.curves):
        for at, value in zip(curve.cycles.tolist(), curve.values.tolist()):
            packet = _event(at, 100_000 + number, TrackEvent.TYPE_COUNTER, None)
            packet.track_event.counter_value = value
            yield packet


def _process(rank: int) -> int:
    """The number of a GPU's own track."""
    return rank + 1


def _described(
    track: int, parent: int = 0, name: str = "", process: int | None = None, counter: bool = False, first: bool = False
) -> Any:
    packet = TracePacket(trusted_packet_sequence_id=SEQUENCE)
    if first:
        packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    described = packet.track_descriptor
    described.uuid = track
    if process is not None:
        described.process.pid = process + 1
        described.process.process_name = name
        described.child_ordering = TrackDescriptor.LEXICOGRAPHIC
    else:
        described.parent_uuid, described.name = parent, name
    if counter:
        described.counter.SetInParent()
    return packet


def _event(at: int, track: int, kind: int, about: Mark | None) -> Any:
    packet = TracePacket(trusted_packet_sequence_id=SEQUENCE, timestamp=at + BEFORE)
    event = packet.track_event
    event.type, event.track_uuid = kind, track
    if about is not None:
        event.name = about.name
        if about.effects:
            event.flow_ids.extend(about.effects)
        if about.causes:
            event.terminating_flow_ids.extend(about.causes)
        for name, value in about.details.items():
            event.debug_annotations.add(name=name, int_value=value)
    return packet
