"""What the range table says of one WF tile: its trigger-table entry, its threshold and whether it exists at all.

Ragged tiles: the last tile column is found by the divisibility test described at :data:`hw.range_table.Ragged`, the
last tile row by comparison, so that no wg is ever divided. Source: T3 section 4.2.1 (threshold), hw/DECISIONS.md 9.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Mapping
from ..range_table import Blocks, Control, Grouping, RangeTable, Word, range_write
from ..word_table import mask_of
from .parameters import TrackerParameters

_READ = {
    Word.CONTROL: mask_of(Control, "valid", "mapping", "launch"),
    Word.GROUPING: mask_of(Grouping, "limit", "shift", "wfs", "block_wfs", "block_shift"),
    Word.BLOCKS: mask_of(Blocks, "base", "bottom_wfs", "bottom_full"),
}
_THRESHOLDS = [Word.THRESHOLD_BODY, Word.THRESHOLD_RIGHT, Word.THRESHOLD_BOTTOM, Word.THRESHOLD_CORNER]
MAX_WFS = 8


def bank_bits(config: TrackerParameters) -> int:
    """Bits of wg that choose the Tracker bank."""
    return (config.tracker_banks - 1).bit_length()


def bank_block_bits(config: TrackerParameters) -> int:
    """Width of an index into one bank's part of the trigger table."""
    return config.block_bits - bank_bits(config)


def block_place(config: TrackerParameters) -> data.StructLayout:
    """Where a WF tile stands in the trigger table: entry `index` in its bank, bit `position` of the done mask, which is
    complete at `needed`; `first_wf` of the block; `dma`, `launch`: what its completion starts."""
    return data.StructLayout(
        {
            "index": unsigned(bank_block_bits(config)),
            "position": unsigned(3),
            "needed": unsigned(MAX_WFS),
            "first_wf": unsigned(3),
            "bottom": unsigned(1),
            "dma": unsigned(1),
            "launch": unsigned(1),
        }
    )


def partial_products(index: Value, inverse: Value) -> list[tuple[Value, int]]:
    """Terms, each with the place of its lowest bit, whose sum is (`index` + 1) * `inverse` mod 2**16.

    The multiples of several bits of `index` are added up in a term: the shorter they are, the more of them.
    """
    terms = []
    place = 0
    for rows in (2, 3, 3, 4, 4):
        width = 16 - place
        first = [inverse] if place == 0 else []
        multiples = (Mux(index[place + row], inverse[: width - row], 0) << row for row in range(rows))
        terms.append((sum([*first, *multiples], Const(0, 1))[:width], place))
        place += rows
    return terms


class TileGeometry(wiring.Component):
    """Four-stage lookup beside stages 1 to 4 of the Tracker pipeline.

    Ports: `ranges`, the programming bus. Stage 1: `range`, `wg`, `wf`. Stage 3, two cycles later:
    `index` of the tile's block, early for the trigger table; `bytes` (In). Stage 4: `place`; `right`: the WG is in the
    last tile column; `missing`: no such WF tile in the range; `remaining`: threshold minus `bytes` of the cycle
    before, in bytes, negative when `bytes` alone goes past the threshold. With protection of memories `used`: there is
    a tile in stage 1; `wrong`, one and two cycles later: a word of its range had a wrong bit. No register needs an
    enable: where the pipeline is empty its registers hold what they had, and so does what follows from them.
    """

    def __init__(self, config: TrackerParameters):
        self._config = config
        super().__init__(
            {
                "ranges": In(range_write(config)),
                "range": In(config.range_bits),
                "wg": In(config.wg_bits),
                "wf": In(config.wf_bits),
                "bytes": In(config.count_bits),
                "index": Out(bank_block_bits(config)),
                "place": Out(block_place(config)),
                "right": Out(1),
                "missing": Out(1),
                "remaining": Out(signed(config.count_bits + 1)),
                **({"used": In(1), "wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.tile_words = tile_words = RangeTable(
            config, [Word.CONTROL, Word.WORKGROUPS, Word.RAGGED, Word.GROUPING, Word.BLOCKS], _READ
        )
        m.submodules.thresholds = thresholds = RangeTable(
            config, _THRESHOLDS, dict.fromkeys(_THRESHOLDS, (1 << config.count_bits) - 1)
        )
        m.d.comb += [
            tile_words.write.eq(self.ranges),
            thresholds.write.eq(self.ranges),
            tile_words.index.eq(self.range),
        ]

        # Stage 1: the range's words, and the wg relative to its first one.
        range_2 = Signal(config.range_bits)
        wf_2 = Signal(config.wf_bits)
        relative_2 = Signal(max(config.wg_bits, 16) + 1)
        count_2 = Signal(16)
        bottom_2 = Signal(16)
        inverse_2 = Signal(16)
        grouping_2 = Signal(Grouping)
        blocks_2 = Signal(Blocks)
        valid_range_2 = Signal()
        dma_2 = Signal()
        launch_2 = Signal()
        m.d.sync += [
            range_2.eq(self.range),
            wf_2.eq(self.wf),
            relative_2.eq(self.wg - tile_words.workgroups.base),
            count_2.eq(tile_words.workgroups.count),
            bottom_2.eq(tile_words.ragged.bottom),
            inverse_2.eq(tile_words.ragged.inverse),
            grouping_2.eq(tile_words.grouping),
            blocks_2.eq(tile_words.blocks),
            valid_range_2.eq(tile_words.control.valid),
            dma_2.eq(tile_words.control.mapping == Mapping.DMA),
            launch_2.eq(tile_words.control.launch),
        ]

        if config.protects_memories:
            used_2 = Signal()
            m.d.sync += used_2.eq(self.used)
            m.d.comb += [
                tile_words.used.eq(self.used),
                thresholds.used.eq(used_2),
                self.wrong.eq(tile_words.wrong | thresholds.wrong),
            ]

        # Stage 2: tile row and block of the tile, and what follows for either kind of row; partial products of the
        # divisibility test.
        m.d.comb += thresholds.index.eq(range_2)
        block = Signal(3)
        first = Signal(3)
        with m.Switch(Cat(wf_2, grouping_2.block_wfs)):
            for size in range(2, MAX_WFS + 1):
                for wf in range(size, MAX_WFS):
                    with m.Case(size * MAX_WFS + wf):
                        m.d.comb += [block.eq(wf // size), first.eq(wf // size * size)]
            for wf in range(MAX_WFS):
                with m.Case(MAX_WFS + wf):
                    m.d.comb += [block.eq(wf), first.eq(wf)]
        index_3 = Signal(22)
        parts = partial_products(relative_2[:16], inverse_2)
        parts_3 = [Signal(len(part), name=f"part_{place}") for part, place in parts]
        limit_3 = Signal(16)
        shift_3 = Signal(4)
        block_wfs_3 = Signal(4)
        wf_3 = Signal(config.wf_bits)
        first_3 = Signal(3)
        outside_3 = Signal()
        bottom_3 = Signal()
        left_3 = Signal(4)
        bottom_left_3 = Signal(4)
        below_bottom_3 = Signal()
        is_partial_3 = Signal()
        dma_3 = Signal()
        launch_3 = Signal()
        body_3, right_3, ragged_3, corner_3 = (Signal(config.count_bits, name=f"threshold_{n}") for n in range(4))
        m.d.comb += self.index.eq(index_3)
        m.d.sync += [
            index_3.eq(
                (blocks_2.base >> bank_bits(config))
                + (((relative_2 >> bank_bits(config)) << grouping_2.block_shift) | block)
            ),
            *(register.eq(part) for register, (part, _) in zip(parts_3, parts, strict=True)),
            limit_3.eq(grouping_2.limit),
            shift_3.eq(grouping_2.shift),
            block_wfs_3.eq(grouping_2.block_wfs),
            wf_3.eq(wf_2),
            first_3.eq(first),
            outside_3.eq(~valid_range_2 | (relative_2 >= count_2) | (wf_2 >= grouping_2.wfs)),
            bottom_3.eq(relative_2 >= bottom_2),
            left_3.eq(grouping_2.wfs - first),
            bottom_left_3.eq(blocks_2.bottom_wfs - first),
            below_bottom_3.eq(wf_2 >= blocks_2.bottom_wfs),
            is_partial_3.eq((wf_2 == blocks_2.bottom_full) & (blocks_2.bottom_wfs > blocks_2.bottom_full)),
            dma_3.eq(dma_2),
            launch_3.eq(launch_2),
            body_3.eq(thresholds.threshold_body),
            right_3.eq(thresholds.threshold_right),
            ragged_3.eq(thresholds.threshold_bottom),
            corner_3.eq(thresholds.threshold_corner),
        ]

        # Stage 3: which WF tiles the block has; both thresholds are reduced, so that the last column only selects.
        ragged_row = Signal()
        left = Signal(4)
        members = Signal(4)
        product_4 = Signal(16)
        limit_4 = Signal(16)
        shift_4 = Signal(4)
        plain_4 = Signal(signed(config.count_bits + 1))
        right_4 = Signal(signed(config.count_bits + 1))
        m.d.comb += [
            ragged_row.eq(bottom_3 & is_partial_3),
            left.eq(Mux(bottom_3, bottom_left_3, left_3)),
            members.eq(Mux(left < block_wfs_3, left, block_wfs_3)),
        ]
        m.d.sync += [
            product_4.eq(sum(part << place for part, (_, place) in zip(parts_3, parts, strict=True))),
            limit_4.eq(limit_3),
            shift_4.eq(shift_3),
            plain_4.eq(Mux(ragged_row, ragged_3, body_3) - self.bytes),
            right_4.eq(Mux(ragged_row, corner_3, right_3) - self.bytes),
            self.missing.eq(outside_3 | (bottom_3 & below_bottom_3) | index_3[bank_block_bits(config) :].any()),
            self.place.index.eq(index_3),
            self.place.position.eq(wf_3 - first_3),
            self.place.first_wf.eq(first_3),
            self.place.bottom.eq(bottom_3),
            self.place.dma.eq(dma_3),
            self.place.launch.eq(launch_3),
        ]
        with m.Switch(members):
            for number in range(MAX_WFS + 1):
                with m.Case(number):
                    m.d.sync += self.place.needed.eq((1 << number) - 1)

        # Stage 4: last tile column?
        rotated = Signal(16)
        m.d.comb += [
            rotated.eq(Cat(product_4, product_4) >> shift_4),
            self.right.eq(rotated <= limit_4),
            self.remaining.eq(Mux(self.right, right_4, plain_4)),
        ]
        return m
