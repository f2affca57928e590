"""What the range table says of one WF tile: its trigger-table entry, its threshold and whether it exists at all.

Ragged tiles: the last tile column is found by the divisibility test described at :data:`hw.range_table.Ragged`, the
last tile row by comparison, so that no wg is ever divided. Source: T3 section 4.2.1 (threshold), SPEC section 3.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Configuration
from hw.messages import Mapping
from hw.range_table import Blocks, Grouping, RangeTable, RangeWrite, Word

MAX_WFS = 8


def bank_bits(config: Configuration) -> int:
    """Bits of wg that choose the Tracker bank."""
    return (config.tracker_banks - 1).bit_length()


def bank_block_bits(config: Configuration) -> int:
    """Width of an index into one bank's part of the trigger table."""
    return config.block_bits - bank_bits(config)


def block_place(config: Configuration) -> data.StructLayout:
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


class TileGeometry(wiring.Component):
    """Three-stage lookup beside the Tracker pipeline.

    Ports: `ranges`, the programming bus. Stage 0: `advance` with `range`, `wg`, `wf`. Two cycles later (stage 2):
    `place`; `right`: the WG is in the last tile column; `missing`: no such WF tile in the range; `remaining`: threshold
    minus `bytes` (In, of stage 2), in bytes, negative when `bytes` alone goes past the threshold.
    """

    def __init__(self, config: Configuration):
        self._config = config
        super().__init__(
            {
                "ranges": In(RangeWrite),
                "advance": In(1),
                "range": In(config.range_bits),
                "wg": In(config.wg_bits),
                "wf": In(config.wf_bits),
                "bytes": In(config.count_bits),
                "place": Out(block_place(config)),
                "right": Out(1),
                "missing": Out(1),
                "remaining": Out(signed(config.count_bits + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.tile_words = tile_words = RangeTable(
            config, [Word.CONTROL, Word.WORKGROUPS, Word.RAGGED, Word.GROUPING, Word.BLOCKS]
        )
        m.submodules.thresholds = thresholds = RangeTable(
            config, [Word.THRESHOLD_BODY, Word.THRESHOLD_RIGHT, Word.THRESHOLD_BOTTOM, Word.THRESHOLD_CORNER]
        )
        m.d.comb += [
            tile_words.write.eq(self.ranges),
            thresholds.write.eq(self.ranges),
            tile_words.index.eq(self.range),
        ]

        # Stage 0: the range's words, and the wg relative to its first one.
        valid_1 = Signal()
        range_1 = Signal(config.range_bits)
        wf_1 = Signal(config.wf_bits)
        relative_1 = Signal(max(config.wg_bits, 16) + 1)
        count_1 = Signal(16)
        bottom_1 = Signal(16)
        inverse_1 = Signal(16)
        grouping_1 = Signal(Grouping)
        blocks_1 = Signal(Blocks)
        valid_range_1 = Signal()
        dma_1 = Signal()
        launch_1 = Signal()
        m.d.sync += valid_1.eq(self.advance)
        with m.If(self.advance):
            m.d.sync += [
                range_1.eq(self.range),
                wf_1.eq(self.wf),
                relative_1.eq(self.wg - tile_words.workgroups.base),
                count_1.eq(tile_words.workgroups.count),
                bottom_1.eq(tile_words.ragged.bottom),
                inverse_1.eq(tile_words.ragged.inverse),
                grouping_1.eq(tile_words.grouping),
                blocks_1.eq(tile_words.blocks),
                valid_range_1.eq(tile_words.control.valid),
                dma_1.eq(tile_words.control.mapping == Mapping.DMA),
                launch_1.eq(tile_words.control.launch),
            ]

        # Stage 1: tile row and block of the tile; first half of the divisibility test.
        m.d.comb += thresholds.index.eq(range_1)
        is_bottom = Signal()
        wfs = Signal(4)
        ragged_row = Signal()
        block = Signal(3)
        first = Signal(3)
        with m.Switch(Cat(wf_1, grouping_1.block_wfs)):
            for size in range(2, MAX_WFS + 1):
                for wf in range(size, MAX_WFS):
                    with m.Case(size * MAX_WFS + wf):
                        m.d.comb += [block.eq(wf // size), first.eq(wf // size * size)]
            for wf in range(MAX_WFS):
                with m.Case(MAX_WFS + wf):
                    m.d.comb += [block.eq(wf), first.eq(wf)]
        left = Signal(4)
        members = Signal(4)
        index = Signal(22)
        m.d.comb += [
            is_bottom.eq(relative_1 >= bottom_1),
            wfs.eq(Mux(is_bottom, blocks_1.bottom_wfs, grouping_1.wfs)),
            ragged_row.eq(is_bottom & (wf_1 == blocks_1.bottom_full) & (blocks_1.bottom_wfs > blocks_1.bottom_full)),
            left.eq(wfs - first),
            members.eq(Mux(left < grouping_1.block_wfs, left, grouping_1.block_wfs)),
            index.eq(
                (blocks_1.base >> bank_bits(config))
                + (((relative_1 >> bank_bits(config)) << grouping_1.block_shift) | block)
            ),
        ]
        product_2 = Signal(16)
        limit_2 = Signal(16)
        shift_2 = Signal(4)
        plain_2 = Signal(config.count_bits)
        right_2 = Signal(config.count_bits)
        with m.If(valid_1):
            m.d.sync += [
                product_2.eq(relative_1[:16] * inverse_1 + inverse_1),
                limit_2.eq(grouping_1.limit),
                shift_2.eq(grouping_1.shift),
                plain_2.eq(Mux(ragged_row, thresholds.threshold_bottom, thresholds.threshold_body)),
                right_2.eq(Mux(ragged_row, thresholds.threshold_corner, thresholds.threshold_right)),
                self.missing.eq(
                    ~valid_range_1
                    | (relative_1 >= count_1)
                    | (wf_1 >= wfs)
                    | (wf_1 >= grouping_1.wfs)
                    | index[bank_block_bits(config) :].any()
                ),
                self.place.index.eq(index),
                self.place.position.eq(wf_1 - first),
                self.place.first_wf.eq(first),
                self.place.bottom.eq(is_bottom),
                self.place.dma.eq(dma_1),
                self.place.launch.eq(launch_1),
            ]
            with m.Switch(members):
                for number in range(MAX_WFS + 1):
                    with m.Case(number):
                        m.d.sync += self.place.needed.eq((1 << number) - 1)

        # Stage 2: last tile column? Both thresholds are reduced meanwhile, so that the answer only selects.
        rotated = Signal(16)
        m.d.comb += [
            rotated.eq(Cat(product_2, product_2) >> shift_2),
            self.right.eq(rotated <= limit_2),
            self.remaining.eq(Mux(self.right, right_2 - self.bytes, plain_2 - self.bytes)),
        ]
        return m
