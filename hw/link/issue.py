"""Closed packets of one source of the link, in the order of their closing, until they have become descriptors."""

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..primitives.queue import Queue
from .parameters import LinkParameters
from .wire import count_bits, descriptor_layout, packet_layout


def closed_layout(parameters: LinkParameters) -> data.StructLayout:
    """A closed packet: where it lies, and which sends it has."""
    packet, descriptor = packet_layout(parameters), descriptor_layout(parameters)
    return data.StructLayout(
        {
            **{name: descriptor[name].shape for name in ("bank", "slot", "length", "epoch", "mark")},
            "first": packet["first"].shape,
            "count": count_bits(parameters),
        }
    )


class PacketIssue(wiring.Component):
    """Makes one descriptor for each send of the oldest closed packet, once all its sectors are there.

    With `asks` it is asked whether they are: a packet of the DMA engine is closed with the last read that is asked for.
    Packets of stores are whole when they are closed.

    Ports: `close`, `closed`: at most `depth` of them wait; `asked`, `whole`: whether that packet's sectors are there,
    in the same cycle; `forget`: it is no longer asked for; `port_of`: port of each send; `valid`, `descriptor`, `port`:
    one send, through that port, stays until `taken`; `idle`: none waits; with protection of memories `queue_wrong`, a
    pulse: a packet left the queue with a wrong bit. Latency: `close` to `valid` 1 cycle, with `asks` 2, and `whole` to
    `valid` 1. Rate: one descriptor a cycle.
    """

    def __init__(self, parameters: LinkParameters, depth: int, asks: bool):
        self._parameters = parameters
        self._depth = depth
        self._asks = asks
        closed = closed_layout(parameters)
        questions = {"asked": Out(closed), "whole": In(1), "forget": Out(1)} if asks else {}
        super().__init__(
            {
                "close": In(1),
                "closed": In(closed),
                **questions,
                "port_of": In(4).array(parameters.sends),
                "valid": Out(1),
                "descriptor": Out(descriptor_layout(parameters)),
                "port": Out(4),
                "taken": In(1),
                "idle": Out(1),
                **({"queue_wrong": Out(1)} if parameters.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        closed = closed_layout(self._parameters)
        checked = self._parameters.protects_memories
        m.submodules.queue = queue = Queue(closed, self._depth, bypass=True, checked=checked)
        if checked:
            m.d.comb += self.queue_wrong.eq(queue.wrong)
        m.d.comb += [queue.i.valid.eq(self.close), queue.i.payload.eq(self.closed)]
        # Registers part the search among the slots from what comes before and after it.
        issued = Signal(closed)
        """Its sends that are left: `first` is the next one."""
        coming = Signal(closed)
        free = Signal()
        m.d.comb += free.eq(~self.valid | (self.taken & (issued.count == 1)))
        waits = Signal()
        m.d.comb += self.idle.eq(~queue.o.valid & ~waits & ~self.valid)
        if self._asks:
            m.d.comb += [
                self.forget.eq(waits & self.whole & free),
                queue.o.ready.eq(~waits | self.forget),
            ]
            with m.If(queue.o.ready):
                m.d.sync += [waits.eq(queue.o.valid), self.asked.eq(queue.o.payload)]
            m.d.comb += coming.eq(self.asked)
            with m.If(free):
                m.d.sync += self.valid.eq(self.forget)
        else:
            m.d.comb += [queue.o.ready.eq(free), coming.eq(queue.o.payload)]
            with m.If(free):
                m.d.sync += self.valid.eq(queue.o.valid)
        with m.If(free):
            m.d.sync += issued.eq(coming)
        with m.Elif(self.taken):
            m.d.sync += [issued.first.eq(issued.first + 1), issued.count.eq(issued.count - 1)]
        descriptor = self.descriptor
        m.d.comb += [
            *(descriptor[name].eq(issued[name]) for name in ("bank", "slot", "length", "epoch", "mark")),
            descriptor.send.eq(issued.first),
        ]
        with m.Switch(descriptor.send):
            for send in range(self._parameters.sends):
                with m.Case(send):
                    m.d.comb += self.port.eq(self.port_of[send])
        return m
