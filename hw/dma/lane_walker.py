"""Address generator of the DMA engine of one lane of several: walks a transfer, and gives the lane's part of it.

What is not in the lane is passed over without being walked: a row at a time, or within a row to the lane's next sector.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..geometry import INTERLEAVE_SECTORS
from ..message_parameters import ChannelParameters
from ..messages import Messages
from .transfer import ROW_SECTORS_BITS, TILES_BITS, Geometry, label_layout, sector_layout, transfer_layout
from .walker import to_first_row, to_next_row

_PLACE_BITS = (INTERLEAVE_SECTORS - 1).bit_length()


class LaneWalker(wiring.Component):
    """Turns transfers into those of their sectors that are in lane `lane`, in the order of
    :class:`hw.dma.walker.Walker`.

    Ports: those of Walker, and `lane`; `absent`: pulse in the cycle in which a transfer turns out to have no sector
    here: it has ended, as it does otherwise with the sector that is marked `end`. A transfer that is stopped, or whose
    rows leave its range, ends with neither. Latency: a transfer taken in cycle c has its first sector in c + 3 or
    later. Rate: a packet is offered when the walk has found the next one or has ended, and the walk passes a packet or
    a row in one cycle, so packets follow each other without bubbles where every row has one here.
    """

    def __init__(self, config: ChannelParameters):
        self._config = config
        messages = Messages(config)
        super().__init__(
            {
                "lane": In(config.lane_bits),
                "transfers": In(stream.Signature(transfer_layout(config))),
                "sectors": Out(stream.Signature(sector_layout(config))),
                "label": Out(label_layout(config)),
                "stop": In(1),
                "walking": Out(1),
                "absent": Out(1),
                "leaves": Out(1),
                "next_va": Out(messages.va),
                "next_tile": Out(messages.wf),
            }
        )

    def _walk_layout(self) -> data.StructLayout:
        """Where the walk is, in each dimension; `left`: sectors of the row from `va` on."""
        messages = Messages(self._config)
        return data.StructLayout(
            {
                "va": messages.va,
                "left": unsigned(ROW_SECTORS_BITS),
                "row_va": messages.va,
                "rows_left": unsigned(16),
                "tile_va": messages.va,
                "tiles_left": unsigned(TILES_BITS),
                "tile": messages.wf,
            }
        )

    def packet_layout(self) -> data.StructLayout:
        """A packet from its sector at `va` on, the one of number `place`, with `more` behind it; `row_end`: the last
        one ends its row."""
        messages = Messages(self._config)
        return data.StructLayout(
            {
                "va": messages.va,
                "place": unsigned(_PLACE_BITS),
                "more": unsigned(_PLACE_BITS),
                "tile": messages.wf,
                "row_end": unsigned(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        walk = Signal(self._walk_layout())
        geometry = Signal(Geometry)
        label = Signal.like(self.label)
        last_row = Signal(self._config.va_sector_bits)
        scanning = Signal()
        cut = Signal()
        """The transfer ends without its last sector."""
        packet = Signal(self.packet_layout())
        coming = Signal(self.packet_layout())
        packet_valid = Signal()
        coming_valid = Signal()
        sector = self.sectors.payload
        load = Signal()
        step = Signal()
        moves = Signal()
        last = Signal()
        m.d.comb += [
            self.label.eq(label),
            self.walking.eq(scanning | coming_valid | packet_valid),
            self.transfers.ready.eq(~self.walking),
            load.eq(self.transfers.valid & self.transfers.ready),
            self.sectors.valid.eq(packet_valid & (coming_valid | ~scanning)),
            step.eq(self.sectors.valid & self.sectors.ready),
            last.eq(packet.more == 0),
            moves.eq(coming_valid & (~packet_valid | (step & last))),
            sector.va.eq(packet.va),
            sector.tile.eq(packet.tile),
            sector.place.eq(packet.place),
            sector.packet_end.eq(last),
            sector.end.eq(last & ~coming_valid & ~cut),
            sector.mask.eq(Const(0xFFFFFFFF, 32)),
        ]
        with m.If(last & packet.row_end & (geometry.last_bytes != 0)):
            m.d.comb += sector.mask.eq((Const(1, 32) << geometry.last_bytes) - 1)

        found, found_valid, row_over, behind = self._find(m, walk)
        passes = Signal()
        ends = Signal()
        room = Signal()
        m.d.comb += [
            room.eq(~coming_valid | moves),
            passes.eq(scanning & (room | ~found_valid)),
        ]
        inside = self._advance(m, walk, geometry, last_row, passes, found, row_over, behind, ends)
        some = Signal()
        """A sector of the transfer was found."""
        over = Signal()
        m.d.comb += [
            over.eq(passes & row_over & ends),
            self.absent.eq(over & ~some & ~found_valid & ~self.stop),
            self.next_va.eq(walk.va),
            self.next_tile.eq(walk.tile),
        ]
        crosses = Signal()
        m.d.comb += crosses.eq(passes & row_over & ~ends & ~inside & ~self.stop)
        m.d.sync += self.leaves.eq(crosses)
        with m.If(load):
            to_first_row(m, walk, geometry, label, self.transfers.payload)
            m.d.sync += [
                walk.left.eq(self.transfers.payload.geometry.row_sectors),
                scanning.eq(self.transfers.payload.inside),
                last_row.eq(self.transfers.payload.last_row),
                some.eq(0),
                cut.eq(0),
            ]
        with m.Elif(over | crosses | self.stop):
            m.d.sync += scanning.eq(0)
        with m.If(passes & found_valid):
            m.d.sync += some.eq(1)
        with m.If(crosses | (self.stop & (scanning | coming_valid))):
            m.d.sync += cut.eq(1)

        with m.If(passes & found_valid):
            m.d.sync += [coming.eq(found), coming_valid.eq(~self.stop)]
        with m.Elif(moves | self.stop):
            m.d.sync += coming_valid.eq(0)
        with m.If(moves & ~self.stop):
            m.d.sync += [packet.eq(coming), packet_valid.eq(1)]
        with m.Elif(step & last):
            m.d.sync += packet_valid.eq(0)
        with m.Elif(step):
            m.d.sync += [
                packet.va.eq(packet.va + 1),
                packet.place.eq(packet.place + 1),
                packet.more.eq(packet.more - 1),
            ]
        return m

    def _find(self, m: Module, walk: data.View) -> tuple[data.View, Signal, Signal, Signal]:
        """The first packet of this lane in the row from where the walk stands, if there is one; whether nothing of the
        row is behind it, and how many sectors are."""
        low = _PLACE_BITS + self._config.lane_channel_bits
        high = low + self._config.lane_bits
        found = Signal(self.packet_layout())
        found_valid = Signal()
        row_over = Signal()
        way = Signal(high)
        """Sectors from the walk to the lane."""
        rest = Signal(signed(ROW_SECTORS_BITS + 2))
        """Sectors of the row from there on."""
        space = Signal(_PLACE_BITS + 1)
        m.d.comb += [
            way.eq(Mux(walk.va[low:high] == self.lane, 0, (self.lane << low) - walk.va[:high])),
            rest.eq(walk.left - way),
            found_valid.eq((rest > 0) | (way == 0)),
            found.va.eq(walk.va + way),
            space.eq(INTERLEAVE_SECTORS - found.va[:_PLACE_BITS]),
            found.row_end.eq(rest <= space),
            found.more.eq(Mux(found.row_end, Mux(rest > 0, rest - 1, 0), space - 1)),
            found.tile.eq(walk.tile),
            found.place.eq(0),
            row_over.eq(~found_valid | found.row_end),
        ]
        behind = Signal(ROW_SECTORS_BITS)
        m.d.comb += behind.eq(rest - space)
        return found, found_valid, row_over, behind

    def _advance(
        self,
        m: Module,
        walk: data.View,
        geometry: data.View,
        last_row: Signal,
        passes: Signal,
        found: data.View,
        row_over: Signal,
        behind: Signal,
        ends: Signal,
    ) -> Signal:
        """With `passes`, stand behind the packet found, or on the next row. Returns whether that begins at `last_row`
        or before; `ends`: there is none."""
        tile_end = Signal()
        m.d.comb += [tile_end.eq(walk.rows_left[1:] == 0), ends.eq(tile_end & (walk.tiles_left[1:] == 0))]
        inside = to_next_row(m, walk, geometry, last_row, passes & row_over, tile_end)
        with m.If(passes & row_over):
            m.d.sync += walk.left.eq(geometry.row_sectors)
        with m.Elif(passes):
            m.d.sync += [walk.va.eq(Cat(Const(0, _PLACE_BITS), found.va[_PLACE_BITS:] + 1)), walk.left.eq(behind)]
        return inside
