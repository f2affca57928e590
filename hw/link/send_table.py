"""Send table: where a packet goes and what becomes of it there.

A region names its first send and how many follow, so one read of a sector serves several peers.

Two memories of the same kind, since they are read at different times: the ports of all sends before a packet gets its
slot, one whole entry when a flit is made.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..messages import Access, AluOperation, DataType, Messages, TrafficClass
from .wire import LaneParameters, count_bits


class SendWord(enum.Enum, shape=2):
    """Words of an entry as they are programmed."""

    CONTROL = 0
    OFFSET_LOW = 1
    OFFSET_HIGH = 2
    WG_OFFSET = 3


SendControl = data.StructLayout(
    {
        "port": unsigned(4),
        "peer": unsigned(6),
        "access": Access,
        "alu": AluOperation,
        "dtype": DataType,
        "traffic_class": TrafficClass,
        "reserved": unsigned(14),
    }
)
"""CONTROL: the link port that leads to rank `peer`; what the packet does there, and as what it is counted."""

SendWrite = data.StructLayout({"valid": unsigned(1), "index": unsigned(6), "word": SendWord, "data": unsigned(32)})
"""One word of one entry being programmed."""


def send_layout(parameters: LaneParameters) -> data.StructLayout:
    """An entry: OFFSET in sectors is added to the address (a whole turn of the interleave), WG_OFFSET to the wg."""
    messages = Messages(parameters.config)
    return data.StructLayout({"control": SendControl, "offset": messages.va, "wg_offset": messages.wg})


class SendTable(wiring.Component):
    """The entries of `sends` sends, read by the egress.

    Ports: `write`: programming bus; `read`, `index`: entry `send` in the next cycle, and until the next read; per
    source of packets `first`, `count`: in the next cycle `ports`, those of sends `first` to `first` + `count` - 1, and
    `single`, that no two of them use one port; `port_of`: port of each send, 0 for
    one that does not exist. A word written in cycle c holds for reads from c + 1.
    """

    def __init__(self, parameters: LaneParameters, sources: int = 2):
        self._parameters = parameters
        self._sources = sources
        send = range(parameters.sends)
        super().__init__(
            {
                "write": In(SendWrite),
                "read": In(1),
                "index": In(send if parameters.sends > 1 else 1),
                "send": Out(send_layout(parameters)),
                "first": In(send if parameters.sends > 1 else 1).array(sources),
                "count": In(count_bits(parameters)).array(sources),
                "ports": Out(parameters.links).array(sources),
                "single": Out(1).array(sources),
                "port_of": Out(4).array(parameters.sends),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sends = self._parameters.sends
        words = []
        for word in SendWord:
            memory = Memory(shape=unsigned(32), depth=max(2, sends), init=[])
            m.submodules[word.name.lower()] = memory
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.addr.eq(self.write.index),
                write.data.eq(self.write.data),
                write.en.eq(self.write.valid & (self.write.word == word) & (self.write.index < sends)),
                read.addr.eq(self.index),
                read.en.eq(self.read),
            ]
            words.append(read.data)
        control, low, high, wg_offset = words
        m.d.comb += [
            self.send.control.eq(control),
            self.send.offset.eq(Cat(low, high)),
            self.send.wg_offset.eq(wg_offset),
        ]
        for number in range(sends):
            here = self.write.valid & (self.write.word == SendWord.CONTROL) & (self.write.index == number)
            with m.If(here):
                port = SendControl(self.write.data).port
                m.d.sync += self.port_of[number].eq(Mux(port < self._parameters.links, port, 0))
        for source in range(self._sources):
            self._fan(m, source)
        return m

    def _fan(self, m: Module, source: int) -> None:
        """The ports that the sends of a packet of `source` use."""
        first, count = self.first[source], self.count[source]
        users = []
        for port in range(self._parameters.links):
            uses = Signal(self._parameters.sends, name=f"uses_{source}_{port}")
            for number in range(self._parameters.sends):
                # A packet's sends go around the end of the table, as when its descriptors are made.
                inside = (number - first)[: len(first)] < count
                m.d.comb += uses[number].eq(inside & (self.port_of[number] == port))
            users.append(uses)
        m.d.sync += [
            self.ports[source].eq(Cat(uses.any() for uses in users)),
            self.single[source].eq(~Cat((uses & (uses - 1)).any() for uses in users).any()),
        ]
