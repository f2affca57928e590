"""A Tracker under full load: each of its channels commits a sector in every cycle, as long as it is let."""

from dataclasses import dataclass

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.range_table import RangeWrite
from hw.tracker.parameters import TrackerParameters
from hw.tracker.tracker import Tracker
from tb.golden.tracker import TiledRange

SECTOR_BYTES, INTERLEAVE = 32, 8
EPOCH = 1

Run = data.StructLayout({"wg": 16, "wf": 3, "more": 3, "bytes": 6})
"""Consecutive commits of one channel to one WF tile: `more` of whole sectors before the last one, of `bytes`."""


@dataclass(frozen=True)
class Load:
    """The stores of a GEMM whose workgroups take turns, `at_once` of them, a row of a tile each."""

    area: TiledRange
    pitch: int
    """Sectors from a row to the next."""
    at_once: int

    def runs(self, channels: int) -> list[list[dict[str, int]]]:
        """By channel its commits, in their order."""
        found: list[list[dict[str, int]]] = [[] for _ in range(channels)]
        area = self.area
        height = area.tile_rows // area.wfs
        coming = iter(range(area.first_wg, area.first_wg + area.workgroups))
        live = [[wg, 0] for _, wg in zip(range(self.at_once), coming, strict=False)]
        while live:
            for place in range(len(live) - 1, -1, -1):
                wg, row = live[place]
                down, across = divmod(wg - area.first_wg, area.tiles_across)
                here = down * area.tile_rows + row
                if row == area.tile_rows or here >= area.rows:
                    following = next(coming, None)
                    live[place : place + 1] = [] if following is None else [[following, 0]]
                    continue
                columns = min(area.tile_columns, area.columns - across * area.tile_columns)
                first = here * self.pitch + across * area.tile_columns * 2 // SECTOR_BYTES
                self._row(found, first, columns * 2, wg, row // height)
                live[place][1] += 1
        return found

    def _row(self, found: list[list[dict[str, int]]], first: int, size: int, wg: int, wf: int) -> None:
        sector, left = first, size
        while left > 0:
            count = min(INTERLEAVE - sector % INTERLEAVE, -(-left // SECTOR_BYTES))
            last = min(left - (count - 1) * SECTOR_BYTES, SECTOR_BYTES)
            found[sector // INTERLEAVE % len(found)].append({"wg": wg, "wf": wf, "more": count - 1, "bytes": last})
            sector, left = sector + count, left - count * SECTOR_BYTES


class TrackerUnderLoad(wiring.Component):
    """Ports: `ranges`; `go`; `cleared`, `done` of the Tracker; `cycles` since `go`, until the first channel is through;
    `held`: those of them in which a channel's commit was not taken; `triggers`, `faults` in all; `over`: every commit
    was taken."""

    def __init__(self, config: TrackerParameters, load: Load):
        self._config = config
        self._load = load
        super().__init__(
            {
                "ranges": In(RangeWrite),
                "go": In(1),
                "cleared": Out(1),
                "done": Out(config.ranges),
                "cycles": Out(32),
                "held": Out(32),
                "triggers": Out(32),
                "faults": Out(32),
                "over": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.tracker = tracker = Tracker(config)
        held = Signal(config.channels)
        through = Signal(config.channels)
        for channel, runs in enumerate(self._load.runs(config.channels)):
            self._commit(m, tracker, channel, runs, held, through)
        m.d.comb += [
            tracker.ranges.eq(self.ranges),
            tracker.epoch.eq(EPOCH),
            tracker.blocks.ready.eq(1),
            tracker.launches.ready.eq(1),
            tracker.faults.ready.eq(1),
            tracker.spill_requests.ready.eq(1),
            self.cleared.eq(tracker.cleared),
            self.done.eq(tracker.done),
            self.over.eq(through.all()),
        ]
        m.d.sync += [
            self.triggers.eq(self.triggers + tracker.events.triggers),
            self.faults.eq(self.faults + tracker.faults.valid),
        ]
        with m.If(self.go & ~through.any()):
            m.d.sync += [self.cycles.eq(self.cycles + 1), self.held.eq(self.held + held.any())]
        return m

    def _commit(
        self,
        m: Module,
        tracker: Tracker,
        channel: int,
        runs: list[dict[str, int]],
        held: Signal,
        through: Signal,
    ) -> None:
        memory = Memory(shape=Run, depth=len(runs), init=runs)
        m.submodules[f"runs_{channel}"] = memory
        read = memory.read_port(domain="comb")
        index = Signal(range(len(runs)), name=f"index_{channel}")
        place = Signal(unsigned(3), name=f"place_{channel}")
        port = tracker.commits[channel]
        run, commit = read.data, port.payload
        ends = Signal(name=f"ends_{channel}")
        m.d.comb += [
            read.addr.eq(index),
            ends.eq(place == run.more),
            port.valid.eq(self.go & ~through[channel]),
            commit.wg.eq(run.wg),
            commit.wf.eq(run.wf),
            commit.epoch.eq(EPOCH),
            commit.bytes.eq(Mux(ends, run.bytes, SECTOR_BYTES)),
            commit.va.eq(Cat(Const(0, 3), index)),
            held[channel].eq(port.valid & ~port.ready),
        ]
        with m.If(port.valid & port.ready):
            m.d.sync += place.eq(Mux(ends, 0, place + 1))
            with m.If(ends):
                m.d.sync += index.eq(index + 1)
                with m.If(index == len(runs) - 1):
                    m.d.sync += through[channel].eq(1)
