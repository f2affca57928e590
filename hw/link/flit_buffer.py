"""Flits of one port between the slots and the wire; fills in their check."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .flit_crc import flit_check
from .wire import LaneParameters, flit_layout


class FlitBuffer(wiring.Component):
    """`output_flits` flits, the oldest of them on the wire.

    Ports: `room`: a flit may be asked for, which comes in the next cycle; depends on `tx.ready`; `coming`, `flit`: it
    comes; `tx`: the same with its check. Latency 1 cycle; rate one flit a cycle from two flits on.
    """

    def __init__(self, parameters: LaneParameters):
        self._parameters = parameters
        layout = flit_layout(parameters)
        super().__init__(
            {
                "room": Out(1),
                "coming": In(1),
                "flit": In(layout),
                "tx": Out(stream.Signature(layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._parameters.output_flits
        layout = flit_layout(self._parameters)
        held = [Signal(layout, name=f"held_{place}") for place in range(depth)]
        used = Signal(range(depth + 1))
        taken = Signal()
        after = Signal(range(depth + 1))
        m.d.comb += [
            taken.eq(self.tx.valid & self.tx.ready),
            self.tx.valid.eq(used != 0),
            after.eq(used - taken),
            self.room.eq(after + self.coming < depth),
        ]
        m.d.sync += used.eq(after + self.coming)
        for place, flit in enumerate(held):
            with m.If(self.coming & (after == place)):
                m.d.sync += flit.eq(self.flit)
            with m.Elif(taken & (place + 1 < depth)):
                m.d.sync += flit.eq(held[min(place + 1, depth - 1)])
        message = held[0].as_value()[: layout["check"].offset]
        check = flit_check(message) if self._parameters.protected else 0
        m.d.comb += self.tx.payload.eq(Cat(message, check))
        return m
