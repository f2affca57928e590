"""A store counter in front of somebody's SRAM: says which tile is complete, from the Tracker and its trigger table."""

from amaranth import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.range_table import RangeWrite
from hw.tracker import Tracker, TrackerParameters
from sim.host.range_entries import range_words
from sim.host.tiling import Tiling

TILES, WORDS = 16, 8
SIZE = TrackerParameters(ranges=4, tracker_sets=16, tracker_ways=4, trigger_blocks=64)
TILING = Tiling(rows=TILES, columns=16 * WORDS, tile_rows=1, tile_columns=16 * WORDS, wfs=1)
TABLE = range_words(SIZE, base=0, tiling=TILING, tracked=True, launch=True)
Store = data.StructLayout({"address": range(TILES * WORDS), "data": 256, "mask": 32})


class TileEvents(wiring.Component):
    """A memory of 16 tiles of 8 words of 32 bytes. `stores`: bytes `mask` of a word, in any order, each byte once;
    `complete`: the number of a tile when all of it is stored; `address`, `value`: what the memory holds, in the same
    cycle. Not `ready` for about 70 cycles after reset, while the range is programmed and the tables are cleared."""

    stores: In(stream.Signature(Store))
    complete: Out(stream.Signature(range(TILES)))
    address: In(range(TILES * WORDS))
    value: Out(256)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sram = sram = Memory(shape=256, depth=TILES * WORDS, init=[])
        m.submodules.tracker = tracker = Tracker(SIZE)
        write, read = sram.write_port(granularity=8), sram.read_port(domain="comb")
        store, commit, done = self.stores.payload, tracker.commits[0], tracker.launches

        # After reset the range's entry, a word a cycle.
        entry = [RangeWrite.const({"valid": 1, "word": word, "data": value}) for word, value in TABLE.items()]
        step = Signal(range(len(entry) + 1))
        programmed = step == len(entry)
        m.d.sync += step.eq(Mux(programmed, step, step + 1))
        m.d.comb += tracker.ranges.eq(Array([*entry, 0])[step])

        # What is stored is committed in the same cycle, all of it in epoch 1.
        m.d.comb += [commit.valid.eq(self.stores.valid & programmed), self.stores.ready.eq(commit.ready & programmed)]
        m.d.comb += [write.addr.eq(store.address), write.data.eq(store.data)]
        m.d.comb += write.en.eq(store.mask & (commit.valid & commit.ready).replicate(32))
        m.d.comb += [commit.payload.wg.eq(store.address // WORDS), commit.payload.va.eq(store.address)]
        m.d.comb += [commit.payload.bytes.eq(sum(store.mask)), commit.payload.epoch.eq(1), tracker.epoch.eq(1)]

        # A launch event is a tile that is complete. Nothing is sent on, no counter is ever evicted, no store refused.
        m.d.comb += [self.complete.payload.eq(done.payload.wg), self.complete.valid.eq(done.valid)]
        m.d.comb += [done.ready.eq(self.complete.ready), read.addr.eq(self.address), self.value.eq(read.data)]
        m.d.comb += [port.ready.eq(1) for port in (tracker.blocks, tracker.spill_requests, tracker.faults)]
        return m
