"""A parity beside a memory whose words live for a short time: compared behind the use, so that no path is longer.

A word that was used wrong cannot be taken back. What is found ends the epoch, so its result is not taken for a good
one (hw/DECISIONS.md 176).
"""

from collections.abc import Collection, Sequence

from amaranth import Cat, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory, ReadPort, WritePort
from amaranth.lib.wiring import In, Out

from .partial_parities import partial_parities

PART = 8
"""Bits of a word whose parity is found in the cycle of the access, unless it is said to be in a hurry."""


class MemoryWatch(wiring.Component):
    """Parities of a memory of `depth` words of `width` bits with a read port for each of `late`.

    Ports: `written`, `write_address`, `word`: what the memory is told; per read port `used`, `address`: a word that was
    written before is read, and will be used, and `read`, the word, so many cycles later (1: of a clocked read port);
    `wrong` (pulse): a word that was used had an odd number of wrong bits, with its parity; `busy`: `wrong` may still
    come of what was used. Latency: `used` to `wrong` 2 cycles and
    those of `late`. `part`: bits of a word that are summed up as it comes; 1 for words that come late in their cycle.

    The parities are written and looked up a cycle behind the words, in the same order, so each word finds its own.
    """

    def __init__(self, width: int, depth: int, late: Sequence[int] = (0,), part: int = PART):
        self._depth = depth
        self._late = tuple(late)
        self._part = part
        reads = len(self._late)
        address = range(depth)
        super().__init__(
            {
                "written": In(1),
                "write_address": In(address),
                "word": In(width),
                "used": In(1).array(reads),
                "address": In(address).array(reads),
                "read": In(width).array(reads),
                "wrong": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.parities = parities = Memory(shape=1, depth=self._depth, init=[])
        write = parities.write_port()
        parts = Signal(-(-len(self.word) // self._part))
        m.d.sync += [
            write.en.eq(self.written),
            write.addr.eq(self.write_address),
            parts.eq(partial_parities(self.word, self._part)),
        ]
        m.d.comb += write.data.eq(parts.xor())

        found = [self._compare(m, parities, number) for number in range(len(self.used))]
        m.d.sync += self.wrong.eq(Cat(wrong for wrong, _ in found).any())
        m.d.comb += self.busy.eq(Cat(self.wrong, *(busy for _, busy in found)).any())
        return m

    def _compare(self, m: Module, parities: Memory, number: int) -> tuple[Value, Value]:
        """Whether the word that read port `number` used differs from its parity, and whether one is looked at."""
        lookup = parities.read_port(domain="comb")
        used = Signal(name=f"used_{number}")
        parts = Signal(-(-len(self.word) // self._part), name=f"parts_{number}")
        m.d.sync += [
            used.eq(self.used[number]),
            lookup.addr.eq(self.address[number]),
            parts.eq(partial_parities(self.read[number], self._part)),
        ]
        waits, parity = [used], lookup.data
        for cycle in range(self._late[number]):
            waited, kept = Signal(name=f"used_{number}_{cycle}"), Signal(name=f"parity_{number}_{cycle}")
            m.d.sync += [waited.eq(waits[-1]), kept.eq(parity)]
            waits.append(waited)
            parity = kept
        return waits[-1] & (parts.xor() ^ parity), Cat(waits).any()


def checked_bits(word: Value | data.View, apart: Collection[str] = ()) -> Value:
    """The bits of `word` without its fields `apart`, which have a parity of their own."""
    if not isinstance(word, data.View) or not isinstance(word.shape(), data.StructLayout):
        return Value.cast(word)
    return Cat(checked_bits(word[name], apart) for name in word.shape().members if name not in apart)


def watch(
    m: Module,
    name: str,
    write: WritePort,
    *reads: tuple[ReadPort, Value],
    apart: Collection[str] = (),
    part: int = PART,
) -> MemoryWatch:
    """A watch, as submodule `name`, of the memory behind port `write`. `reads`: its read ports, of one kind, each with
    when it reads what will be used; fields `apart` of the words have a parity of their own; `part` as of the watch."""
    word = checked_bits(write.data, apart)
    late = int(reads[0][0].domain != "comb")
    m.submodules[name] = found = MemoryWatch(len(word), write.memory.depth, [late] * len(reads), part)
    m.d.comb += [
        found.written.eq(write.en),
        found.write_address.eq(write.addr),
        found.word.eq(word),
    ]
    for number, (port, used) in enumerate(reads):
        m.d.comb += [
            found.used[number].eq(used),
            found.address[number].eq(port.addr),
            found.read[number].eq(checked_bits(port.data, apart)),
        ]
    return found
