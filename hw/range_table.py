"""The range table: one entry per pinned range of the address space, written word by word over the register bus.

An entry is eighteen 32-bit words (:data:`WORDS`). Writes are broadcast on a :class:`RangeWrite` bus and every block
keeps only the words it needs, in a memory read by range index, so no wide bundle of registers crosses the design.
Source: T3 sections 4.2.2 and 4.4 (`remote_map`, `dma_map`).
"""

from amaranth import Cat, Module, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from .memory_window import WindowCheck, in_window
from .message_parameters import ChannelParameters
from .messages import Access, AluOperation, DataType, Mapping
from .primitives.lowest_bit import encode, lowest
from .protection import ProtectionParameters
from .word_table import WordTable, kept_parity, word_write


class Word(enum.IntEnum):
    """Word offsets of a range entry (address = entry base + 4 * word)."""

    CONTROL = 0
    BASE_LOW = 1
    BASE_HIGH = 2
    LIMIT_LOW = 3
    LIMIT_HIGH = 4
    WORKGROUPS = 5
    RAGGED = 6
    GROUPING = 7
    BLOCKS = 8
    ROWS = 9
    ROW_BYTES = 10
    PITCH = 11
    WF_STRIDE = 12
    THRESHOLD_BODY = 13
    THRESHOLD_RIGHT = 14
    THRESHOLD_BOTTOM = 15
    THRESHOLD_CORNER = 16
    WF_TOTAL = 17


ENTRY_WORDS = 32
"""Words an entry occupies in the register map."""

Control = data.StructLayout(
    {
        "valid": unsigned(1),
        "mapping": Mapping,
        "access": Access,
        "alu": AluOperation,
        "dtype": DataType,
        "first_touch": unsigned(1),
        "tracked": unsigned(1),
        "launch": unsigned(1),
        "first_send": unsigned(6),
        "sends": unsigned(6),
        "reserved": unsigned(8),
    }
)
"""CONTROL: `access` is how a store is performed here (STORE or UPDATE), `alu`/`dtype` the reduction; `launch`: a
complete block raises a WG-launch event. Remote-mapped stores go where entry `first_send` of :mod:`hw.send_table` says;
so does a complete block of a DMA-mapped range, once: `sends`, the number of its sends, is 1."""

Workgroups = data.StructLayout({"base": unsigned(16), "count": unsigned(16)})
"""WORKGROUPS: first wg of the range and how many."""

Ragged = data.StructLayout({"bottom": unsigned(16), "inverse": unsigned(16)})
"""RAGGED: `bottom` = index in the range of the first wg of the last tile row. With n = index in the range + 1,
n is a multiple of the tiles in a row (the wg is in the last tile column) when
rotate_right_16(n * inverse mod 2**16, shift) <= limit (Hacker's Delight, 10-17)."""

Grouping = data.StructLayout(
    {
        "limit": unsigned(16),
        "shift": unsigned(4),
        "wfs": unsigned(4),
        "block_wfs": unsigned(4),
        "block_shift": unsigned(2),
        "reserved": unsigned(2),
    }
)
"""GROUPING: `limit`, `shift`: see RAGGED; `wfs` = WF tiles per WG (1..8), `block_wfs` = WF tiles per DMA block
(1..wfs), a WG owns 2**block_shift trigger-table entries."""

Blocks = data.StructLayout(
    {"base": unsigned(20), "bottom_wfs": unsigned(4), "bottom_full": unsigned(4), "reserved": unsigned(4)}
)
"""BLOCKS: `base` = first trigger-table entry. In the last tile row a WG has `bottom_wfs` WF tiles with any rows, of
which the first `bottom_full` have all their rows (the next, if any, has `rows_partial`)."""

Rows = data.StructLayout({"full": unsigned(16), "partial": unsigned(16)})
"""ROWS: rows of a WF tile, and of the ragged one in the last tile row."""

RowBytes = data.StructLayout({"body": unsigned(16), "right": unsigned(16)})
"""ROW_BYTES: bytes in one row of a tile, and of a tile in the last tile column (1..4096)."""

_WORD_BITS = 5
RangeWrite = word_write(_WORD_BITS)
"""One word of one entry being programmed."""


def range_write(config: ProtectionParameters) -> data.StructLayout:
    """:data:`RangeWrite`, and with protection of memories what checks it."""
    return word_write(_WORD_BITS, config.protects_memories)


WORDS: dict[Word, type[data.Struct]] = {
    Word.CONTROL: Control,
    Word.WORKGROUPS: Workgroups,
    Word.RAGGED: Ragged,
    Word.GROUPING: Grouping,
    Word.BLOCKS: Blocks,
    Word.ROWS: Rows,
    Word.ROW_BYTES: RowBytes,
}
"""Words with fields; every other word is a plain number. Pitch, stride, base and limit are in sectors;
thresholds (body, last column, ragged row, ragged row in the last column) are in bytes = WF tile bytes x updates per
element; THRESHOLD_BOTTOM and _CORNER hold for the WF tile that has `partial` rows. `limit` is exclusive."""


class RangeMatch(wiring.Component):
    """Finds the range that holds an address; ranges do not overlap (the lowest index wins if they do).

    Ports: `write`, the programming bus; `window`: addresses that are not in it are in no range; with `look_up`, `va` in
    sectors; in the next cycle, and until the next look-up, `hit`, `index`, and with protection of memories `wrong`: a
    bit of some range was. A word written in cycle c holds for look-ups from c + 1 on. Reset leaves every range invalid.
    """

    def __init__(self, config: ChannelParameters):
        self._config = config
        super().__init__(
            {
                "write": In(range_write(config)),
                "window": In(WindowCheck),
                "look_up": In(1),
                "va": In(config.va_sector_bits),
                "hit": Out(1),
                "index": Out(config.range_bits),
                **({"wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._config.va_sector_bits
        checked = self._config.protects_memories
        matches = Signal(self._config.ranges)
        matched = Signal()
        wrong = Signal(self._config.ranges)
        for index in range(self._config.ranges):
            valid = Signal(name=f"valid_{index}")
            base = Signal(width, name=f"base_{index}")
            limit = Signal(width, name=f"limit_{index}")
            kept = {
                Word.CONTROL: valid,
                Word.BASE_LOW: base[:32],
                Word.BASE_HIGH: base[32:],
                Word.LIMIT_LOW: limit[:32],
                Word.LIMIT_HIGH: limit[32:],
            }
            parity = Signal(len(kept), name=f"parity_{index}")
            with m.If(self.write.valid & (self.write.index == index)):
                with m.Switch(self.write.word):
                    for number, (word, place) in enumerate(kept.items()):
                        with m.Case(word.value):
                            m.d.sync += place.eq(self.write.data)
                            if checked:
                                m.d.sync += parity[number].eq(kept_parity(self.write, self.write.data[: len(place)]))
            m.d.comb += matches[index].eq(valid & (self.va >= base) & (self.va < limit))
            if checked:
                odd = [Cat(place, bit).xor() for place, bit in zip(kept.values(), parity, strict=True)]
                with m.If(self.look_up):
                    m.d.sync += wrong[index].eq(Cat(odd).any())
        within = Signal()
        with m.If(self.look_up):
            m.d.sync += [
                within.eq(in_window(self._config, self.window, self.va)),
                matched.eq(matches.any()),
                self.index.eq(encode(lowest(matches))),
            ]
        m.d.comb += self.hit.eq(matched & within)
        if checked:
            m.d.comb += self.wrong.eq(wrong.any())
        return m


class RangeTable(WordTable):
    """Some words of every range entry, with the layouts of :data:`WORDS` (or 32-bit numbers); `read`: see
    :class:`hw.word_table.WordTable`."""

    def __init__(self, config: ChannelParameters, words: list[Word], read: dict[Word, int] | None = None):
        shapes = {word: WORDS.get(word, unsigned(32)) for word in words}
        super().__init__(range_write(config), shapes, config.ranges, read)
