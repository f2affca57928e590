"""Recorded runs of a GEMM: when each workgroup of a real GPU began and stored its tile.

A trace is an array of whole numbers with one row per workgroup and four columns: `wg`, its place in dispatch order;
`sm`, the multiprocessor it ran on; begin, and store, in ns from the first begin. It lies in an npz file, which may hold
several: FILE.npz:KEY names one. Dispatch runs through the chunks as a rank takes them, in each through the tiles row by
row; of a sub-layer, and of the recordings that come with the project, tiles are 128 x 128.

`sim/workloads/data/h200_gemm_traces.npz` was recorded on an NVIDIA H200 with a tiled FP16 GEMM of the sub-layers of
Table 2 at TP 8 and 16 (`h200_gemm_traces.json` has their shapes). Up to 264 workgroups ran at a time, two on each of
132 multiprocessors; some with K not a multiple of 8 ran slowly because of unaligned rows.
"""

import json
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sim.errors import UsageError
from sim.models.plan_layout import Workgroup
from sim.workloads.kernel_plans import GemmTimes
from sim.workloads.machines import Machine
from sim.workloads.sublayer import SubLayer
from sim.workloads.tile_order import Dispatch

H200_TRACES = Path(__file__).parent / "data" / "h200_gemm_traces.npz"
MOST_SLOTS = 256
"""Workgroups of a recording that run at a time here, of up to 264: with what its results were measured."""


@dataclass(frozen=True)
class RecordedTrace:
    """A trace in order of the begins: columns as above, and `slots`: most workgroups at once."""

    number: np.ndarray
    begin: np.ndarray
    store: np.ndarray
    slots: int

    def dispatch(self, layer: SubLayer) -> Dispatch:
        """Tiles in the order in which they began: the dispatch order runs through the chunks as a rank takes them."""
        return Dispatch(self.number // layer.workgroups, self.number % layer.workgroups)

    def times(self, steps: int) -> GemmTimes:
        """Each workgroup of so many steps begins when it did and takes as long as it did, unless memory makes it
        slower. Raises :class:`sim.errors.UsageError` where a step would be longer than a plan can say."""
        step_cycles = np.maximum((self.store - self.begin) // steps, 1)
        most = 1 << Workgroup["step_cycles"].width
        if (step_cycles >= most).any():
            raise UsageError(f"trace must have workgroups of less than {most:,} cycles in each of their {steps} steps")
        return GemmTimes(step_cycles, 0, self.begin)

    def on(self, machine: Machine) -> "RecordedTrace":
        """The trace with its times in cycles of `machine`. Raises :class:`sim.errors.UsageError` when it is too long
        for a plan."""
        begin, store = (np.round(times / machine.cycle_ns).astype(np.int64) for times in (self.begin, self.store))
        most = 1 << Workgroup["not_before"].width
        if (store >= most).any():
            raise UsageError(
                f"trace must be shorter than {int(most * machine.cycle_ns):,} ns on machine {machine.name}, "
                f"got {self.store.max():,}"
            )
        return replace(self, begin=begin, store=store)


def load_trace(source: str, workgroups: int) -> RecordedTrace:
    """The trace `FILE.npz:KEY` (or FILE.npz, when it holds one) of a GEMM of so many workgroups.

    Raises :class:`sim.errors.UsageError` when it is not one.
    """
    path, _, name = source.partition(".npz:")
    file = Path(path + ".npz" if name else path)
    if not file.is_file():
        raise UsageError(f"trace {file} does not exist or is not a file")
    try:
        # Opened here, because numpy leaves the file open when it turns out not to be an archive.
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
            keys = list(archive.files)
            chosen = name or keys[0]
            if chosen not in keys or (not name and len(keys) > 1):
                raise UsageError(f"trace must be {file}:KEY with KEY one of {', '.join(keys)}; got {source}")
            rows = np.asarray(archive[chosen])
    except UsageError:
        raise
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error, AttributeError) as error:
        raise UsageError(f"trace {file} is not a readable npz file") from error
    if rows.ndim != 2 or rows.shape[1] != 4 or rows.dtype.kind not in "iu":
        raise UsageError(f"trace {source} must have rows of four whole numbers: wg, sm, begin, store")
    if sorted(rows[:, 0].tolist()) != list(range(workgroups)):
        raise UsageError(f"trace {source} must have one row for each of the {workgroups} workgroups of the shape")
    if (rows[:, 2] < 0).any() or (rows[:, 3] <= rows[:, 2]).any() or (rows[:, 3] >= 1 << 24).any():
        raise UsageError(f"trace {source} must have 0 <= begin < store < {1 << 24} ns in every row")
    rows = rows[np.argsort(rows[:, 2], kind="stable")]
    begin, store = rows[:, 2].astype(np.int64), rows[:, 3].astype(np.int64)
    changes = np.concatenate([begin * 2 + 1, store * 2])
    running = np.cumsum(np.where(np.sort(changes) % 2, 1, -1))
    return RecordedTrace(rows[:, 0].astype(np.int64), begin, store, int(min(running.max(), MOST_SLOTS)))


def shipped_traces() -> dict[str, tuple[int, int, int, int]]:
    """Key -> (M, N, K, TP) of the traces in :data:`H200_TRACES`."""
    entries = json.loads(H200_TRACES.with_suffix(".json").read_text())
    return {entry["key"]: (entry["m"], entry["n"], entry["k"], entry["tp"]) for entry in entries}
