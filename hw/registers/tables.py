"""A table of words that software reads and writes, as the register file uses it, protected or not."""

from dataclasses import dataclass

from amaranth import Cat, Const, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import data
from amaranth.lib.memory import WritePort

from .protected_words import ProtectedWords


@dataclass(frozen=True)
class Table:
    """Words of a table: entries of 2**`entry_bits` words, of which `words` are used, from byte address `base` on. They
    are kept in a memory, and broadcast; `address`: the one that is read, `word` in the next cycle."""

    base: int
    words: int
    entry_bits: int
    index_bits: int
    address: Value
    word: Value

    def holds(self, address: Signal) -> Value:
        """Whether byte address `address` is a word of an entry."""
        beyond = address[2 + self.index_bits :] != self.base >> (2 + self.index_bits)
        return ~beyond & (address[2 : 2 + self.entry_bits] < self.words)

    def clear(self, m: Module, address: Value) -> None:
        """Write and broadcast 0 at word address `address` of the window."""
        raise NotImplementedError

    def put(self, m: Module, address: Value, value: Value, strobe: Value) -> None:
        """Write and broadcast the word at word address `address` of the window: of what is read there in this cycle the
        bytes of `strobe` become those of `value`. All three stay for a cycle more."""
        raise NotImplementedError

    def answer(self, m: Module, read_data: Signal) -> None:
        """Read what is read in this cycle into `read_data`."""
        m.d.sync += read_data.eq(self.word)

    def offer(self, m: Module, entry: data.View, offered: data.View) -> None:
        """What is read in a cycle with `entry` is its data, `offered`."""
        m.d.comb += offered.eq(entry)
        with m.If(entry.valid):
            m.d.comb += offered.data.eq(self.word)

    def rest(self, m: Module) -> None:
        """Nothing is put, unless what comes behind this says so."""


@dataclass(frozen=True)
class PlainTable(Table):
    """A memory with port `write`, which is written as `bus` is."""

    write: WritePort
    bus: data.View

    def clear(self, m: Module, address: Value) -> None:
        self._write(m, address, Const(0, 32))

    def put(self, m: Module, address: Value, value: Value, strobe: Value) -> None:
        mask = Cat(bit.replicate(8) for bit in strobe)
        self._write(m, address, (self.word & ~mask) | (value & mask))

    def _write(self, m: Module, address: Value, merged: Value) -> None:
        m.d.comb += [self.write.addr.eq(address), self.write.data.eq(merged), self.write.en.eq(1)]
        m.d.sync += [
            self.bus.valid.eq(1),
            self.bus.word.eq(address[: self.entry_bits]),
            self.bus.index.eq(address[self.entry_bits : self.index_bits]),
            self.bus.data.eq(merged),
        ]

    def rest(self, m: Module) -> None:
        m.d.sync += self.bus.valid.eq(0)


@dataclass(frozen=True)
class CheckedTable(Table):
    """A memory with check bits; the syndrome of what the bus is answered is `answer_found`."""

    checked: ProtectedWords
    answer_found: Signal

    def clear(self, m: Module, address: Value) -> None:
        m.d.comb += [self.checked.clear.eq(1), self.checked.place.eq(address)]

    def put(self, m: Module, address: Value, value: Value, strobe: Value) -> None:
        m.d.comb += [self.checked.put.eq(1), self.checked.used.eq(~strobe.all())]

    def answer(self, m: Module, read_data: Signal) -> None:
        m.d.comb += self.checked.used.eq(1)
        m.d.sync += [read_data.eq(self.word), self.answer_found.eq(self.checked.found)]

    def offer(self, m: Module, entry: data.View, offered: data.View) -> None:
        later = Signal.like(entry)
        m.d.sync += later.eq(entry)
        m.d.comb += [offered.eq(later), offered.data.eq(self.checked.corrected)]
        with m.If(entry.valid):
            m.d.comb += self.checked.used.eq(1)
