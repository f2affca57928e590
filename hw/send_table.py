"""The send table: where what a range holds is sent to, written word by word over the register bus.

A send is three 32-bit words (:data:`SEND_WORDS`). Writes are broadcast on a :class:`SendWrite` bus, and every block
keeps the words it needs. A range entry names its first send and how many there are; one send may serve several ranges.
There are as many sends as ranges: a region that is sent to several peers stands beside others that are sent to none.
"""

from amaranth import Module
from amaranth.hdl import unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from .message_parameters import ChannelParameters, MessageParameters
from .messages import Access, AluOperation, DataType, Messages, TrafficClass
from .protection import ProtectionParameters
from .word_table import WordTable, mask_of, word_write


class SendWord(enum.IntEnum):
    """Word offsets of a send (address = entry base + 4 * word)."""

    CONTROL = 0
    OFFSET_LOW = 1
    OFFSET_HIGH = 2


SEND_ENTRY_WORDS = 4
"""Words a send occupies in the register map."""

WG_OFFSET_BITS = 16

SendControl = data.StructLayout(
    {
        "peer": unsigned(6),
        "access": Access,
        "alu": AluOperation,
        "dtype": DataType,
        "traffic_class": TrafficClass,
        "reserved": unsigned(2),
        "wg_offset": unsigned(WG_OFFSET_BITS),
    }
)
"""CONTROL: rank `peer` performs `access` (STORE or UPDATE, with reduction `alu` of `dtype`); `traffic_class` is that of
the DMA's reads (of the first send of a range) and of the writes at the peer; the peer counts it under wg + `wg_offset`
mod 2**16, because ranges of one epoch share no wg there either."""

OffsetHigh = data.StructLayout({"offset": unsigned(20), "reserved": unsigned(8), "port": unsigned(4)})
"""OFFSET_HIGH: the upper bits of the offset; `port`: the link port that leads to the peer."""

SEND_WORDS: dict[SendWord, data.Layout] = {SendWord.CONTROL: SendControl, SendWord.OFFSET_HIGH: OffsetHigh}
"""Words with fields. The offset is the distance from an address here to the peer's, in sectors, modulo the width of an
address: bits 31:0 are OFFSET_LOW."""

_WORD_BITS = 2
SendWrite = word_write(_WORD_BITS)
"""One word of one send being programmed."""


def send_write(config: ProtectionParameters) -> data.StructLayout:
    """:data:`SendWrite`, and with protection of memories what checks it."""
    return word_write(_WORD_BITS, config.protects_memories)


def send_layout(parameters: MessageParameters) -> data.StructLayout:
    """A send: fields as in :data:`SendControl`, and `offset` in sectors."""
    names = ("peer", "access", "alu", "dtype", "traffic_class", "wg_offset")
    return data.StructLayout({**{name: SendControl[name].shape for name in names}, "offset": Messages(parameters).va})


class SendControls(wiring.Component):
    """CONTROL of every send, read by its number in the same cycle; of it `fields`.

    Ports: `write`, the programming bus; `index`, the send read; `control`; with protection of memories `used`, `wrong`:
    see :class:`hw.word_table.WordTable`. Latency: read 0 cycles, write visible in the next. After reset sends are
    garbage until they are written: the register file writes 0 to all of their words.
    """

    def __init__(self, config: ChannelParameters, *fields: str):
        self._config = config
        self._read = {SendWord.CONTROL: mask_of(SendControl, *fields)}
        checks = {"used": In(1), "wrong": Out(1)} if config.protects_memories else {}
        super().__init__(
            {"write": In(send_write(config)), "index": In(config.send_bits), "control": Out(SendControl), **checks}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        shapes = {SendWord.CONTROL: SendControl}
        m.submodules.words = words = WordTable(send_write(config), shapes, config.sends, self._read)
        m.d.comb += [words.write.eq(self.write), words.index.eq(self.index), self.control.eq(words.control)]
        if config.protects_memories:
            m.d.comb += [words.used.eq(self.used), self.wrong.eq(words.wrong)]
        return m
