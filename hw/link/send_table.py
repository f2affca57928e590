"""The send table as the egress reads it: the ports of all sends before a packet gets its slot, an entry when a header
is made.

A region names its first send and how many follow, so one read of a sector serves several peers.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..send_table import OffsetHigh, SendControl, SendWord, SendWrite, send_layout
from .parameters import LinkParameters
from .wire import count_bits


class SendTable(wiring.Component):
    """The entries of `sends` sends, read by the egress.

    Ports: `write`: programming bus; `read`, `index`: entry `send` in the next cycle, and until the next
    read; per source of packets `first`, `count`: in the next cycle `ports`, those of sends `first` to `first` + `count`
    - 1, and `single`, that no two of them use one port; `port_of`: port of each send, 0 for one that does not exist. A
    word written in cycle c holds for reads from c + 1.
    """

    def __init__(self, parameters: LinkParameters, sources: int = 2):
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
                write.en.eq(self.write.valid & (self.write.word == word.value) & (self.write.index < sends)),
                read.addr.eq(self.index),
                read.en.eq(self.read),
            ]
            words.append(read.data)
        control = SendControl(words[SendWord.CONTROL])
        m.d.comb += [
            self.send.offset.eq(Cat(words[SendWord.OFFSET_LOW], OffsetHigh(words[SendWord.OFFSET_HIGH]).offset)),
            *(self.send[name].eq(control[name]) for name, _ in self.send.shape() if name != "offset"),
        ]
        port = OffsetHigh(self.write.data).port
        named = self.write.valid & (self.write.word == SendWord.OFFSET_HIGH.value)
        for number in range(sends):
            with m.If(named & (self.write.index == number)):
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
