"""The send table as the egress reads it: the ports of all sends at any time, an entry when a header is made.

A region names its first send and how many follow, so one read of a sector serves several peers.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..send_table import OffsetHigh, SendControl, SendWord, send_layout, send_write
from ..word_table import WORD_BITS, kept_parity, word_memory
from .parameters import LinkParameters


class SendTable(wiring.Component):
    """The entries of `sends` sends, read by the egress.

    Ports: `write`: programming bus; `read`, `index`: entry `send` in the next cycle, and until the next read;
    `port_of`: port of each send, 0 for one that does not exist; with protection of memories `routes`: ports are in use,
    and `wrong` (pulse): an entry that was read 2 cycles before had a wrong bit, or the port of any send has while they
    are in use. A word written in cycle c holds for reads from c + 1.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        send = range(parameters.sends)
        super().__init__(
            {
                "write": In(send_write(parameters)),
                "read": In(1),
                "index": In(send if parameters.sends > 1 else 1),
                "send": Out(send_layout(parameters)),
                "port_of": Out(4).array(parameters.sends),
                **({"routes": In(1), "wrong": Out(1)} if parameters.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sends = self._parameters.sends
        checked = self._parameters.protects_memories
        kept = {word: self._bits(word) for word in SendWord}
        valid = self.write.valid & (self.write.index < sends)
        read = word_memory(m, self.write, valid, kept, max(2, sends)).read_port()
        m.d.comb += [read.addr.eq(self.index), read.en.eq(self.read)]
        words = [read.data[word][: len(bits)] for word, bits in kept.items()]
        control = SendControl(words[SendWord.CONTROL])
        high = words[SendWord.OFFSET_HIGH]
        m.d.comb += [
            self.send.offset.eq(Cat(words[SendWord.OFFSET_LOW], high[: OffsetHigh["offset"].width])),
            *(self.send[name].eq(control[name]) for name, _ in self.send.shape() if name != "offset"),
        ]
        links = self._parameters.links
        said = OffsetHigh(self.write.data).port
        known = Mux(said < links, said, 0)[: max(1, (links - 1).bit_length())]
        parities = Signal(sends)
        kept_ports = Signal(data.ArrayLayout(len(known), sends))
        named = self.write.valid & (self.write.word == SendWord.OFFSET_HIGH.value)
        for number in range(sends):
            port = kept_ports[number]
            # A wrong bit may have made it a port that does not exist, where a packet would stay for ever.
            m.d.comb += self.port_of[number].eq(Mux(port < links, port, 0))
            with m.If(named & (self.write.index == number)):
                m.d.sync += port.eq(known)
                if checked:
                    m.d.sync += parities[number].eq(kept_parity(self.write, known))
        if checked:
            odd = [read.data[word][: len(bits) + 1].xor() for word, bits in kept.items()]
            self._watch(m, Cat(odd).any(), kept_ports, parities)
        return m

    def _bits(self, word: SendWord) -> list[int]:
        """Which bits of a word are kept: with a parity, no more than are read of it here."""
        offset_bits = self._parameters.va_sector_bits - WORD_BITS
        some = self._parameters.protects_memories and word is SendWord.OFFSET_HIGH
        return list(range(max(offset_bits, 1) if some else WORD_BITS))

    def _watch(self, m: Module, entry_wrong: Value, kept_ports: data.View, parities: Signal) -> None:
        """Say what is wrong of what was read in the cycle before, and of the ports that are kept, with their
        `parities`."""
        was_read = Signal()
        port_wrong = Signal()
        told = Signal()
        ports = [Cat(port, parity).xor() for port, parity in zip(kept_ports, parities, strict=True)]
        m.d.sync += [
            was_read.eq(self.read),
            port_wrong.eq(self.routes & Cat(ports).any()),
            told.eq(port_wrong),
            self.wrong.eq((was_read & entry_wrong) | (port_wrong & ~told)),
        ]
