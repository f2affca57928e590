"""A table of words written one at a time over the register bus, and read by whole entries."""

from collections.abc import Mapping
from enum import IntEnum
from itertools import accumulate
from typing import Any, TypeVar

from amaranth import Cat, Const, Module, Signal
from amaranth.hdl import ShapeLike, Value, ValueLike, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .primitives.partial_parities import partial_parities

AnyWord = TypeVar("AnyWord", bound=IntEnum)
INDEX_BITS = 6
WORD_BITS = 32
PART = 4
"""Bits of a word whose parity is found in the cycle in which it is read."""
_ADDED = {"renewed": 1, "parity": 1}


def word_write(word_bits: int, checked: bool = False) -> data.StructLayout:
    """A programming bus: one word of one entry, in a cycle with `valid`. With `checked` it is `renewed`, not new but as
    it was written last, or not, and `parity` makes all but `valid` even."""
    fields = {"valid": 1, "index": INDEX_BITS, "word": word_bits, "data": WORD_BITS}
    return data.StructLayout({name: unsigned(bits) for name, bits in (fields | _ADDED if checked else fields).items()})


def is_wrong(write: data.View) -> Value:
    """Whether a bit of what is on checked programming bus `write` is wrong."""
    return Cat(write[name] for name in write.shape().members if name != "valid").xor()


def kept_parity(write: data.View, kept: Value) -> Value:
    """The bit to be kept beside `kept`, some of the data on a checked programming bus: together they are even, or odd
    if what is on the bus is wrong."""
    return kept.xor() ^ is_wrong(write)


def mask_of(layout: data.StructLayout, *fields: str) -> int:
    """The bits of a word that `fields` of it are."""
    return sum(((1 << layout[name].width) - 1) << layout[name].offset for name in fields)


def word_memory(
    m: Module, write: data.View, valid: ValueLike, kept: Mapping[AnyWord, list[int]], entries: int
) -> Memory:
    """A memory, submodule `entries` of `m`, in which each entry has a place for every word of `kept`, all of the same
    width. While `valid`, what is on programming bus `write` is written: the bits of the word that `kept` lists, and of
    a checked bus their parity behind them."""
    checked = "parity" in write.shape().members
    width = max(map(len, kept.values())) + checked
    memory = Memory(shape=data.ArrayLayout(width, len(kept)), depth=entries, init=[])
    m.submodules.entries = memory
    port = memory.write_port(granularity=1)
    m.d.comb += port.addr.eq(write.index)
    for place, (word, numbers) in enumerate(kept.items()):
        bits = Cat(write.data[number] for number in numbers)
        m.d.comb += [
            port.data[place].eq(Cat(bits, kept_parity(write, bits)) if checked else bits),
            port.en[place].eq(valid & (write.word == word.value)),
        ]
    return memory


class WordTable(wiring.Component):
    """Some words of every entry of a table, in one memory as wide as they are together, of which a word at a time is
    written and an entry at a time read, in the same cycle.

    Parameters: `write`, layout of the programming bus (:func:`word_write`); `words`, those that are kept, each with the
    shape it is read as; `entries`; `read`, of words of which not all bits are read a mask of those that are: with a
    checked bus no others are kept. Ports: `write`; `index`, the entry read; one output per word, named as the word in
    lower case; with a checked bus `used`: what is read is used in this cycle, and a cycle later `wrong`: a bit of that
    entry is, or something was when it was written. Latency: read 0 cycles, write visible in the next. After reset the
    words are garbage until they are written: the register file writes 0 to all of them.
    """

    def __init__(
        self,
        write: data.StructLayout,
        words: Mapping[AnyWord, ShapeLike],
        entries: int,
        read: dict[AnyWord, int] | None = None,
    ):
        self.words: tuple[IntEnum, ...] = tuple(words)
        self._entries = entries
        self._checked = "parity" in write.members
        self._read: dict[Any, int] = (read or {}) if self._checked else {}
        members = {word.name.lower(): Out(shape) for word, shape in words.items()}
        checks = {"used": In(1), "wrong": Out(1)} if self._checked else {}
        super().__init__({"write": In(write), "index": In(ceil_log2(entries)), **members, **checks})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        all_bits = (1 << WORD_BITS) - 1
        kept = {
            word: [number for number in range(WORD_BITS) if self._read.get(word, all_bits) >> number & 1]
            for word in self.words
        }
        read = word_memory(m, self.write, self.write.valid, kept, self._entries).read_port(domain="comb")
        m.d.comb += read.addr.eq(self.index)
        parts: list[Value] = []
        for place, (word, numbers) in enumerate(kept.items()):
            out = getattr(self, word.name.lower())
            found = iter(read.data[place])
            m.d.comb += (out.as_value() if hasattr(out, "as_value") else out).eq(
                Cat(next(found) if number in numbers else Const(0, 1) for number in range(WORD_BITS))
            )
            parts.append(partial_parities(read.data[place][: len(numbers) + self._checked], PART))
        if self._checked:
            # Reading and the whole parity do not fit into one cycle everywhere.
            used = Signal()
            kept_parts = Signal(sum(map(len, parts)))
            m.d.sync += [used.eq(self.used), kept_parts.eq(Cat(parts))]
            ends = list(accumulate(map(len, parts)))
            odd = [kept_parts[end - len(part) : end].xor() for part, end in zip(parts, ends, strict=True)]
            m.d.comb += self.wrong.eq(used & Cat(odd).any())
        return m
