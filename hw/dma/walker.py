"""Address generator of the DMA engine: walks a transfer sector by sector."""

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.hdl import signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..message_parameters import MessageParameters
from ..messages import Messages
from .transfer import ROW_SECTORS_BITS, TILES_BITS, Geometry, label_layout, sector_layout, transfer_layout


def rows_of(geometry: data.View, tile: Signal) -> Mux:
    """Rows of tile number `tile`."""
    return Mux(geometry.ragged & (geometry.ragged_tile == tile), geometry.ragged_rows, geometry.rows)


def to_first_row(m: Module, walk: data.View, geometry: data.View, label: data.View, transfer: data.View) -> None:
    """Have `walk`, as of :func:`to_next_row`, stand on the first sector of `transfer`; keep its geometry and label."""
    m.d.sync += [
        geometry.eq(transfer.geometry),
        label.eq(transfer.label),
        walk.va.eq(transfer.va),
        walk.row_va.eq(transfer.va),
        walk.rows_left.eq(rows_of(transfer.geometry, transfer.tile)),
        walk.tile_va.eq(transfer.va),
        walk.tiles_left.eq(transfer.tiles),
        walk.tile.eq(transfer.tile),
    ]


def to_next_row(
    m: Module, walk: data.View, geometry: data.View, last_row: Signal, go: Value, tile_end: Value
) -> Signal:
    """With `go`, have `walk` stand on the first sector of the next row, with `tile_end` that of the next tile.

    `walk` has `va`, `row_va`, `rows_left`, `tile_va`, `tiles_left`, `tile`. Returns whether that row begins at
    `last_row` or before.
    """
    next_row, next_tile = Signal.like(walk.va), Signal.like(walk.va)
    next_number = Signal(TILES_BITS)
    room = signed(len(walk.va) + 2)
    row_room, tile_room = Signal(room), Signal(room)
    inside = Signal()
    m.d.comb += [
        next_row.eq(walk.row_va + geometry.pitch),
        next_tile.eq(walk.tile_va + geometry.stride),
        next_number.eq(walk.tile + 1),
        # With carries: what goes around the end of the address space is behind it.
        row_room.eq(last_row - walk.row_va - geometry.pitch),
        tile_room.eq(last_row - walk.tile_va - geometry.stride),
        inside.eq(Mux(tile_end, tile_room, row_room) >= 0),
    ]
    with m.If(go & tile_end):
        m.d.sync += [
            walk.va.eq(next_tile),
            walk.row_va.eq(next_tile),
            walk.tile_va.eq(next_tile),
            walk.rows_left.eq(rows_of(geometry, next_number)),
            walk.tiles_left.eq(walk.tiles_left - 1),
            walk.tile.eq(next_number),
        ]
    with m.Elif(go):
        m.d.sync += [walk.va.eq(next_row), walk.row_va.eq(next_row), walk.rows_left.eq(walk.rows_left - 1)]
    return inside


class Walker(wiring.Component):
    """Turns transfers into their sectors: along the row, to the next row, to the next tile.

    Ports: `transfers`; `sectors`, in order; `label`: of the transfer that they belong to; `stop`: the transfer ends
    with the packet that is begun; `leaves`: in the cycle before it ended early, because its next row, from `next_va` in
    tile `next_tile` on, is behind its last one (addresses only grow); `walking`: a transfer. Latency: a transfer taken
    in cycle c has its first sector in c + 1. Rate: one sector a cycle, without bubbles between rows, tiles and
    transfers; `transfers.ready` therefore depends on `sectors.ready`.
    """

    def __init__(self, config: MessageParameters):
        self._config = config
        super().__init__(
            {
                "transfers": In(stream.Signature(transfer_layout(config))),
                "sectors": Out(stream.Signature(sector_layout(config))),
                "label": Out(label_layout(config)),
                "stop": In(1),
                "walking": Out(1),
                "leaves": Out(1),
                "next_va": Out(Messages(config).va),
                "next_tile": Out(Messages(config).wf),
            }
        )

    def _walk_layout(self) -> data.StructLayout:
        """Where the walk is, in each dimension."""
        messages = Messages(self._config)
        return data.StructLayout(
            {
                "va": messages.va,
                "place": unsigned(3),
                "sectors_left": unsigned(ROW_SECTORS_BITS),
                "row_va": messages.va,
                "rows_left": unsigned(16),
                "tile_va": messages.va,
                "tiles_left": unsigned(TILES_BITS),
                "tile": messages.wf,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        walk = Signal(self._walk_layout())
        geometry = Signal(Geometry)
        label = Signal.like(self.label)
        last_row = Signal(self._config.va_sector_bits)
        sector = self.sectors.payload
        load = Signal()
        step = Signal()
        row_end = Signal()
        tile_end = Signal()
        m.d.comb += [
            row_end.eq(walk.sectors_left[1:] == 0),
            tile_end.eq(row_end & (walk.rows_left[1:] == 0)),
            sector.end.eq(tile_end & (walk.tiles_left[1:] == 0)),
            sector.packet_end.eq(row_end | (walk.va[:3] == 7)),
            sector.va.eq(walk.va),
            sector.tile.eq(walk.tile),
            sector.place.eq(walk.place),
            self.sectors.valid.eq(self.walking),
            self.label.eq(label),
            step.eq(self.walking & self.sectors.ready),
            self.transfers.ready.eq(~self.walking | (step & sector.end)),
            load.eq(self.transfers.valid & self.transfers.ready),
        ]
        with m.If(row_end & (geometry.last_bytes != 0)):
            m.d.comb += sector.mask.eq((Const(1, 32) << geometry.last_bytes) - 1)
        with m.Else():
            m.d.comb += sector.mask.eq(Const(0xFFFFFFFF, 32))

        inside = self._advance(m, walk, geometry, last_row, step, row_end, tile_end)
        leaves = Signal()
        m.d.comb += [
            leaves.eq(step & row_end & ~sector.end & ~inside),
            self.next_va.eq(walk.va),
            self.next_tile.eq(walk.tile),
        ]
        m.d.sync += self.leaves.eq(leaves)
        with m.If(load):
            to_first_row(m, walk, geometry, label, self.transfers.payload)
            m.d.sync += [
                walk.place.eq(0),
                walk.sectors_left.eq(self.transfers.payload.geometry.row_sectors),
            ]
            m.d.sync += [self.walking.eq(self.transfers.payload.inside), last_row.eq(self.transfers.payload.last_row)]
        with m.Elif((step & (sector.end | (sector.packet_end & self.stop))) | leaves):
            m.d.sync += self.walking.eq(0)
        return m

    def _advance(
        self,
        m: Module,
        walk: data.View,
        geometry: data.View,
        last_row: Signal,
        step: Signal,
        row_end: Signal,
        tile_end: Signal,
    ) -> Signal:
        """With `step`, stand on the next sector. Returns whether the next row begins at `last_row` or
        before."""
        inside = to_next_row(m, walk, geometry, last_row, step & row_end, tile_end)
        with m.If(step & row_end):
            m.d.sync += [walk.sectors_left.eq(geometry.row_sectors), walk.place.eq(0)]
        with m.Elif(step):
            m.d.sync += [
                walk.va.eq(walk.va + 1),
                walk.sectors_left.eq(walk.sectors_left - 1),
                walk.place.eq(Mux(walk.va[:3] == 7, 0, walk.place + 1)),
            ]
        return inside
