"""Proof of the tile geometry: what the Tracker is told of a WF tile follows from the range's words as documented.

The block is a pipeline without feedback. One arbitrary WF tile is looked up in cycles of the environment's choice; each
stage is compared with what the words say of that tile, so one step of induction is enough.
"""

from dataclasses import dataclass

from amaranth import Cat, Mux, Signal, Value

from hw.config import Configuration
from hw.messages import Mapping
from hw.range_table import WORDS, Word
from hw.tracker.tile_geometry import MAX_WFS, TileGeometry, bank_bits, bank_block_bits
from tb.formal.bench import Bench, Block, implies
from tb.formal.proof import proof

TABLES = {
    "tile_words": (Word.CONTROL, Word.WORKGROUPS, Word.RAGGED, Word.GROUPING, Word.BLOCKS),
    "thresholds": (Word.THRESHOLD_BODY, Word.THRESHOLD_RIGHT, Word.THRESHOLD_BOTTOM, Word.THRESHOLD_CORNER),
}
"""Which table of the block holds which words."""
STAGES = 3
"""Registers between a look-up and its answer."""
GROUPS = (2, 3, 3, 4, 4)
"""Bits of the WG's number whose multiples are added up in one term of the product."""


def product_terms(number: Value, inverse: Value) -> list[Value]:
    """Terms whose sum mod 2**16 is (`number` + 1) * `inverse`, of 16 bits each: shifted multiples, added in groups."""
    terms, bit = [], 0
    for bits in GROUPS:
        multiples = [Mux(number[bit + row], inverse << (bit + row), 0)[:16] for row in range(bits)]
        terms.append(sum(multiples, inverse if bit == 0 else Value.cast(0))[:16])
        bit += bits
    return terms


@dataclass(frozen=True)
class Lookup:
    """The tile looked up, and `asked[n]`: it is in stage n + 1 of the geometry."""

    number: Value
    wg: Value
    wf: Value
    asked: list[Value]


def _words(b: Bench, dut: TileGeometry, block: Block, tile: Lookup) -> dict[Word, Value]:
    """The words of the range as they were written last, which they are not while the look-up is under way."""
    m = b.m
    here = dut.ranges.valid & (dut.ranges.index == tile.number)
    for asked in tile.asked[:STAGES]:
        b.assume(implies(asked, ~here))
    started = b.past(1, "started")
    words: dict[Word, Value] = {}
    for table, names in TABLES.items():
        entry = block.entry(table, tile.number)
        for word in names:
            name = word.name.lower()
            before, after = b.any_const(32, f"{name}_before"), Signal(32, name=name)
            written = Signal(name=f"{name}_written")
            with m.If(here & (dut.ranges.word == word.value)):
                m.d.sync += [after.eq(dut.ranges.data), written.eq(1)]
            value = Signal(32, name=f"{name}_value")
            m.d.comb += value.eq(Mux(written, after, before))
            b.assume(implies(~started, entry[word] == before))
            b.invariant(entry[word] == value)
            words[word] = WORDS[word](value) if word in WORDS else value
    return words


class SpecifiedTile:
    """What the words mean for the tile (hw/range_table.py)."""

    def __init__(self, b: Bench, config: Configuration, block: Block, tile: Lookup, words: dict[Word, Value]):
        m, banks = b.m, bank_bits(config)
        places = [sum(GROUPS[:n]) for n in range(len(GROUPS))]
        self.found = [(block.signal(f"part_{bit}"), bit) for bit in places]
        self.control, self.groups, self.ragged, self.grouping, self.blocks = (words[w] for w in TABLES["tile_words"])
        self.kinds = [words[word] for word in TABLES["thresholds"]]
        control, groups, grouping, blocks = self.control, self.groups, self.grouping, self.blocks
        self.size = size = grouping.block_wfs
        allowed = (size >= 1) & (size <= grouping.wfs) & (grouping.wfs <= MAX_WFS)
        allowed &= (grouping.wfs <= size << grouping.block_shift) & (blocks.bottom_wfs <= grouping.wfs)
        b.assume(implies(Cat(tile.asked).any(), allowed))
        self.place = Signal(config.wg_bits)
        """The WG's number in the range."""
        self.inside, self.bottom, self.exists = (Signal(name=n) for n in ("inside", "bottom", "exists"))
        self.wfs = Signal(4)
        self.passed, self.first = Signal(3), Signal(6)
        """Blocks of the WG before the tile's own, and the first WF tile in its own."""
        self.entry = Signal(24)
        self.terms = [Signal(16, name=f"term_{n}") for n in range(len(GROUPS))]
        self.product = Signal(16)
        """What the terms that the block found add up to; that they are `terms` is claimed by itself."""
        self.right, self.ragged_row = Signal(), Signal()
        self.threshold = Signal(config.count_bits)
        place, passed = self.place, self.passed
        m.d.comb += [
            place.eq(tile.wg - groups.base),
            self.inside.eq((tile.wg >= groups.base) & (place < groups.count)),
            self.bottom.eq(place >= self.ragged.bottom),
            self.wfs.eq(Mux(self.bottom, blocks.bottom_wfs, grouping.wfs)),
            self.exists.eq(control.valid & self.inside & (tile.wf < self.wfs)),
            passed.eq(sum((tile.wf >= count * size for count in range(2, MAX_WFS)), tile.wf >= size)),
            self.first.eq(passed * size),
            self.entry.eq((blocks.base >> banks) + ((place >> banks) << grouping.block_shift) + passed),
            *(signal.eq(term) for signal, term in zip(self.terms, product_terms(place, self.ragged.inverse))),
            self.right.eq((Cat(self.product, self.product) >> grouping.shift)[:16] <= grouping.limit),
            self.ragged_row.eq(
                self.bottom & (tile.wf == blocks.bottom_full) & (blocks.bottom_full < blocks.bottom_wfs)
            ),
        ]
        m.d.sync += self.product.eq(sum(found << bit for found, bit in self.found))
        with m.Switch(Cat(self.right, self.ragged_row)):
            for kind, value in enumerate(self.kinds):
                with m.Case(kind):
                    m.d.comb += self.threshold.eq(value)
        self.fits = self.entry < 1 << bank_block_bits(config)


def _invariants(b: Bench, block: Block, tile: Lookup, spec: SpecifiedTile, taken: Value) -> None:
    """What the registers of each stage hold while the tile is there; `taken`: the bytes of the cycle before."""
    _, second, third, fourth = tile.asked
    control, grouping, blocks = spec.control, spec.grouping, spec.blocks
    dma = control.mapping == Mapping.DMA

    def holds(stage: Value, values: dict[str, Value]) -> None:
        for name, value in values.items():
            b.invariant(implies(stage, block.signal(name) == value))

    relative = block.signal("relative_2")
    holds(
        second,
        {
            "range_2": tile.number,
            "wf_2": tile.wf,
            "relative_2": (tile.wg - spec.groups.base)[: len(relative)],
            "count_2": spec.groups.count,
            "bottom_2": spec.ragged.bottom,
            "inverse_2": spec.ragged.inverse,
            "grouping_2": grouping.as_value(),
            "blocks_2": blocks.as_value(),
            "valid_range_2": control.valid,
            "dma_2": dma,
            "launch_2": control.launch,
        },
    )
    holds(
        third,
        {
            "limit_3": grouping.limit,
            "shift_3": grouping.shift,
            "block_wfs_3": spec.size,
            "wf_3": tile.wf,
            "first_3": spec.first,
            "outside_3": ~(control.valid & spec.inside & (tile.wf < grouping.wfs)),
            "left_3": (grouping.wfs - spec.first)[:4],
            "bottom_left_3": (blocks.bottom_wfs - spec.first)[:4],
            "below_bottom_3": tile.wf >= blocks.bottom_wfs,
            "is_partial_3": (tile.wf == blocks.bottom_full) & (blocks.bottom_wfs > blocks.bottom_full),
            "dma_3": dma,
            "launch_3": control.launch,
            **{f"threshold_{n}": kind[: len(spec.threshold)] for n, kind in enumerate(spec.kinds)},
        },
    )
    holds(third & spec.inside, {"bottom_3": spec.bottom})
    holds(third & spec.exists, {"index_3": spec.entry})
    b.invariant(block.signal("product_4") == spec.product)
    holds(fourth, {"limit_4": grouping.limit, "shift_4": grouping.shift})
    body, right, bottom, corner = (kind[: len(spec.threshold)] for kind in spec.kinds)
    plain, last = Mux(spec.ragged_row, bottom, body), Mux(spec.ragged_row, corner, right)
    holds(fourth & spec.exists, {"plain_4": plain - taken, "right_4": last - taken})


@proof(
    block="tile_geometry",
    claim="for any WF tile of any range: whether it exists, its entry in the trigger table, its place in the block, "
    "the block's members, its tile row, its actions and its threshold less the bytes of the cycle before are those "
    "that the range's words mean; the last tile column is where the divisibility test of (WG number + 1) says so, "
    "whose product is the sum of shifted multiples",
    scope="full size, 1 Tracker bank and 4; any words that hw/range_table.py allows, rewritten at any time but during "
    "the look-up. Tested, not proved: that the multiples make the product (tb/verification/test_formal.py), "
    "and that the divisibility test tells multiples (tb/simulation/test_host.py)",
    bug="bottom_3 stuck at 0: the last tile row is not seen",
    bug_depth=6,
    cover_depth=8,
    depth=1,
)
def tile_geometry(b: Bench) -> None:
    for banks in (1, 4):
        _geometry(b, Configuration(tracker_banks=banks))


def _geometry(b: Bench, config: Configuration) -> None:
    dut = TileGeometry(config)
    block = b.open_block(dut, f"banks_{config.tracker_banks}", stuck={"bottom_3": 0})
    b.assume(implies(dut.ranges.valid, dut.ranges.index < config.ranges))
    number, wg = b.any_const(config.range_bits, "range"), b.any_const(config.wg_bits, "wg")
    wf = b.any_const(config.wf_bits, "wf")
    asked: list[Value] = [(dut.range == number) & (dut.wg == wg) & (dut.wf == wf)]
    for stage in range(STAGES):
        asked.append(b.past(asked[-1], f"asked_{stage + 1}"))
    tile = Lookup(number, wg, wf, asked)
    spec = SpecifiedTile(b, config, block, tile, _words(b, dut, block, tile))
    taken = b.past(dut.bytes, "bytes_before")

    _, _, third, fourth = asked
    for (found, bit), term in zip(spec.found, spec.terms, strict=True):
        b.claim(implies(third, (found << bit)[:16] == term))
    answered = fourth & spec.exists & spec.fits
    b.claim(implies(third & spec.exists & spec.fits, dut.index == spec.entry))
    b.claim(implies(fourth, dut.missing == ~(spec.exists & spec.fits)))
    b.claim(implies(answered, dut.place.index == spec.entry))
    b.claim(implies(answered, (dut.place.first_wf == spec.first) & (dut.place.position == wf - spec.first)))
    for position in range(MAX_WFS):
        member = (position < spec.size) & (spec.first + position < spec.wfs)
        b.claim(implies(answered, dut.place.needed[position] == member))
    b.claim(implies(answered, dut.place.bottom == spec.bottom))
    b.claim(implies(answered, dut.place.dma == (spec.control.mapping == Mapping.DMA)))
    b.claim(implies(answered, dut.place.launch == spec.control.launch))
    b.claim(implies(answered, dut.right == spec.right))
    b.claim(implies(answered, dut.remaining == spec.threshold - taken))
    if not b.seeded:
        _invariants(b, block, tile, spec, taken)
    b.cover(answered & spec.right & spec.ragged_row & (spec.passed == 1) & (spec.size == 3) & (dut.remaining < 0))
    rewritten = b.past(dut.ranges.valid & (dut.ranges.index == number), "rewritten")
    b.cover(b.past(answered, "answered_before") & answered)
    b.cover(asked[0] & spec.exists & rewritten)
