"""A table of words written one at a time over the register bus, and read by whole entries."""

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from amaranth import Module
from amaranth.hdl import ShapeLike, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

AnyWord = TypeVar("AnyWord", bound=IntEnum)


class WordTable(wiring.Component):
    """Some words of every entry of a table, in a small memory per word, read by entry in the same cycle.

    Parameters: `write`, layout of the programming bus (`valid`, `index`, `word`, 32 bits of `data`); `words`, those
    that are kept, each with the shape it is read as; `entries`. Ports: `write`; `index`, the entry read; one output per
    word, named as the word in lower case. Latency: read 0 cycles, write visible in the next. After reset the words are
    garbage until they are written: the register file writes 0 to all of them.
    """

    def __init__(self, write: data.StructLayout, words: Mapping[AnyWord, ShapeLike], entries: int):
        self._words: tuple[IntEnum, ...] = tuple(words)
        self._entries = entries
        members = {word.name.lower(): Out(shape) for word, shape in words.items()}
        super().__init__({"write": In(write), "index": In(ceil_log2(entries)), **members})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for word in self._words:
            name = word.name.lower()
            memory = Memory(shape=unsigned(32), depth=self._entries, init=[])
            m.submodules[name] = memory
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            out = getattr(self, name)
            m.d.comb += [
                write.addr.eq(self.write.index),
                write.data.eq(self.write.data),
                write.en.eq(self.write.valid & (self.write.word == word.value)),
                read.addr.eq(self.index),
                (out.as_value() if hasattr(out, "as_value") else out).eq(read.data),
            ]
        return m
