"""What `recorder.sv` wrote down of a run, as arrays: when each source spoke, and the fields of what it said."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from amaranth.lib import data

from hw.config import Configuration
from sim.models.recorded_events import (
    PacketEvent,
    QueueEvent,
    TileEvent,
    WorkgroupEvent,
    gpu_sources,
    lane_sources,
    node_sources,
)

RECORD = np.dtype([("cycle", "<u4"), ("source", "<u4"), ("payload", "<u8")])
TILE_SOURCES = ("commit", "block", "launch", "doorbell")
LAYOUTS: dict[str, data.StructLayout] = {
    **dict.fromkeys(TILE_SOURCES, TileEvent),
    **dict.fromkeys(("sent", "received"), PacketEvent),
    "queue": QueueEvent,
    **dict.fromkeys(("begun", "retired", "stage"), WorkgroupEvent),
}
"""Source, without the number of its channel or port -> what its payload is."""


@dataclass(frozen=True)
class Events:
    """What one source said: `cycle` of each event, counted from the start of the measured run, and its `fields`."""

    cycle: np.ndarray
    fields: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.cycle)


Recording = dict[str, Events]
"""Source of a GPU -> its events, in order of time."""


def read_recording(folder: Path, prefix: str, rank: int, config: Configuration) -> Recording:
    """What GPU `rank` wrote in `folder` from the last start of its compute units on; a source that was silent has no
    events."""
    found: Recording = {}
    parts = {f"{rank}.gpu": gpu_sources(config), f"{rank}.node": node_sources(config)}
    parts |= {f"{rank * config.lanes + lane}.lane": lane_sources(config, lane) for lane in range(config.lanes)}
    records = {part: _read(folder / f"{prefix}{part}") for part in parts}
    began = _begin(records[f"{rank}.gpu"], config)
    for part, names in parts.items():
        measured = records[part][records[part]["cycle"] >= began]
        for number, name in enumerate(names):
            own = measured[measured["source"] == number]
            found[name] = Events(own["cycle"].astype(np.int64) - began, _fields(name, own["payload"]))
    return found


def begin_of(folder: Path, prefix: str, config: Configuration) -> int:
    """The cycle, from the simulation's first on, in which the measured run begins on rank 0."""
    return _begin(_read(folder / f"{prefix}0.gpu"), config)


def _begin(records: np.ndarray, config: Configuration) -> int:
    starts = records["cycle"][records["source"] == gpu_sources(config).index("start")]
    return int(starts[-1]) if len(starts) else 0


def _read(path: Path) -> np.ndarray:
    # A simulator that was stopped may have left half a record.
    content = path.read_bytes() if path.exists() else b""
    return np.frombuffer(content[: len(content) // RECORD.itemsize * RECORD.itemsize], RECORD)


def _fields(name: str, payload: np.ndarray) -> dict[str, np.ndarray]:
    layout = LAYOUTS.get(name.rstrip("0123456789"))
    if layout is None:
        return {"value": payload.astype(np.int64)}
    return {
        key: (payload >> np.uint64(field.offset) & np.uint64((1 << field.width) - 1)).astype(np.int64)
        for key, field in layout
    }


def numbered(recording: Recording, name: str) -> dict[int, Events]:
    """The events of source `name` by channel or port, whose number is the end of what
    :mod:`sim.models.recorded_events` calls a source."""
    return {
        int(key[len(name) :]): events
        for key, events in recording.items()
        if key.startswith(name) and key[len(name) :].isdigit()
    }


def joined(recording: Recording, name: str) -> Events:
    """The events of all channels or ports of source `name` as one, in order of time; field `port` says whose."""
    parts = numbered(recording, name)
    cycle = np.concatenate([events.cycle for events in parts.values()])
    order = np.argsort(cycle, kind="stable")
    names: Sequence[str] = next(iter(parts.values())).fields.keys()  # type: ignore[assignment]
    fields = {key: np.concatenate([events.fields[key] for events in parts.values()])[order] for key in names}
    port = np.concatenate([np.full(len(events), number) for number, events in parts.items()])
    return Events(cycle[order], fields | {"port": port[order]})
