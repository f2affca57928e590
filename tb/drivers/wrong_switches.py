"""Switches with a fault, to put in the place of the right one: tests must notice."""

from amaranth import Cat, Module, Signal, Value
from amaranth.hdl import Const, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.link.flit_buffer import FlitBuffer
from hw.link.port_receiver import PortReceiver
from hw.link.port_sender import PortSender
from hw.link.turns import Turns
from hw.link.wire import descriptor_layout, header_layout
from hw.primitives.queue import Queue
from sim.models.switch import Switch, SwitchAgreement
from sim.models.switch_input import SwitchInput
from sim.models.switch_output import SwitchOutput
from sim.models.switch_parameters import SwitchParameters


class FirstComes(Turns):
    """Turns of which the lowest number that asks always has the next."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for number in range(len(self.asks)):
            m.d.comb += self.has[number].eq(self.asks[number] & ~self.asks[:number].any())
        return m


class Overtaken(wiring.Component):
    """A queue that keeps back one payload until no other is left."""

    def __init__(self, shape: data.StructLayout, depth: int):
        self._shape, self._depth = shape, depth
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = Queue(self._shape, self._depth)
        kept = Signal(self._shape)
        keeps = Signal()
        m.d.comb += [
            self.i.ready.eq(1),
            queue.i.payload.eq(self.i.payload),
            queue.i.valid.eq(self.i.valid & keeps),
            queue.o.ready.eq(self.o.ready),
            self.o.valid.eq(queue.o.valid | keeps),
            self.o.payload.eq(kept),
        ]
        with m.If(queue.o.valid):
            m.d.comb += self.o.payload.eq(queue.o.payload)
        with m.If(self.i.valid & ~keeps):
            m.d.sync += [keeps.eq(1), kept.eq(self.i.payload)]
        with m.Elif(self.o.ready & ~queue.o.valid):
            m.d.sync += keeps.eq(0)
        return m


class HalfAsFast(FlitBuffer):
    """A buffer that takes a flit in every second cycle."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        odd = Signal()
        m.d.sync += odd.eq(~odd)
        with m.If(odd):
            m.d.comb += self.room.eq(0)
        # It must not sleep, or the cycle would stand.
        m.d.comb += self.wake.eq(1)
        return m


def takes_all_for_clean(flit: Value) -> Value:
    """In the place of :func:`hw.link.flit_crc.flit_is_clean`."""
    return Const(1)


class OneQueue(SwitchInput):
    """An input whose packets wait in one line."""

    def _queues(self, m: Module, receiver: PortReceiver, slot: Signal) -> None:
        parameters = self._parameters
        layout = header_layout(parameters)
        line = data.StructLayout({"packet": descriptor_layout(parameters), "destination": unsigned(6)})
        m.submodules.line = queue = Queue(line, parameters.link_receive_packets)
        arriving = layout(receiver.flit.data[: layout.size])
        waiting = Signal(line)
        with m.If(receiver.header):
            m.d.sync += [
                waiting.destination.eq(arriving.destination),
                waiting.packet.length.eq(arriving.length),
                waiting.packet.epoch.eq(arriving.epoch),
            ]
        m.d.comb += [
            queue.i.payload.eq(waiting),
            queue.i.payload.packet.slot.eq(slot),
            queue.i.payload.packet.bank.eq(self._number),
            queue.i.valid.eq(receiver.complete),
        ]
        for output, offer in enumerate(self.offers):
            here = queue.o.payload.destination == output
            m.d.comb += [offer.payload.eq(queue.o.payload.packet), offer.valid.eq(queue.o.valid & here)]
            with m.If(here):
                m.d.comb += queue.o.ready.eq(offer.ready)


class KeepsStrays(SwitchInput):
    """An input that says nothing of a packet for nobody."""

    def _queues(self, m: Module, receiver: PortReceiver, slot: Signal) -> None:
        super()._queues(m, receiver, slot)
        m.d.comb += self.stray.eq(0)


class KeepsAll(SwitchOutput):
    """An output that throws nothing away."""

    def _choose(self, m: Module, sender: PortSender) -> None:
        super()._choose(m, sender)
        m.d.comb += sender.discard.eq(0)


class GrantsOfOne(SwitchAgreement):
    """A GPU is granted what any other one grants."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        for port, epoch in enumerate(self.epoch):
            m.d.sync += self.granted[port].eq(Cat(peer.granted for peer in self.peers).any())
            for peer in self.peers:
                with m.If(peer.granted):
                    m.d.sync += epoch.eq(peer.epoch)
        return m


class KeepsQuiet(SwitchAgreement):
    """Nobody hears of an abort."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.sync += [notice.eq(0) for notice in self.notice]
        return m


class WrongInputs(Switch):
    """Of :class:`OneQueue`."""

    inputs: type[SwitchInput] = OneQueue

    def _input(self, parameters: SwitchParameters, number: int) -> SwitchInput:
        return self.inputs(parameters, number)


class SaysNothingOfStrays(WrongInputs):
    """Of :class:`KeepsStrays`."""

    inputs = KeepsStrays


class ThrowsNothingAway(Switch):
    """Of :class:`KeepsAll`."""

    def _output(self, parameters: SwitchParameters) -> SwitchOutput:
        return KeepsAll(parameters)


class OneGrantIsEnough(Switch):
    """With :class:`GrantsOfOne`."""

    def _agreement(self, parameters: SwitchParameters) -> SwitchAgreement:
        return GrantsOfOne(parameters)


class TellsNobody(Switch):
    """With :class:`KeepsQuiet`."""

    def _agreement(self, parameters: SwitchParameters) -> SwitchAgreement:
        return KeepsQuiet(parameters)
