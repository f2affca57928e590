"""Flits of one port between the slots and the wire; fills in their CRC."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .flit_crc import flit_crc
from .parameters import LinkParameters
from .wire import flit_layout


class FlitBuffer(wiring.Component):
    """`output_flits` flits, the oldest of them on the wire.

    Ports: `room`: a flit may be asked for; depends on `tx.ready`; `asked`: it is; `coming`, `flit`: what was asked for
    comes, in turn; `tx`: the same with its CRC; `empty`: the wire has taken all that was asked for; `wake`: see
    :mod:`hw.primitives.clock_enable`. Latency 1 cycle; rate one flit a cycle, if there is a flit more than cycles from
    `asked` to `coming`.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        layout = flit_layout(parameters)
        super().__init__(
            {
                "room": Out(1),
                "asked": In(1),
                "coming": In(1),
                "flit": In(layout),
                "tx": Out(stream.Signature(layout)),
                "empty": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._parameters.link_output_flits
        layout = flit_layout(self._parameters)
        held = [Signal(layout, name=f"held_{place}") for place in range(depth)]
        used = Signal(range(depth + 1))
        owed = Signal(range(depth + 1))
        """Flits asked for that the wire has not taken."""
        taken = Signal()
        after = Signal(range(depth + 1))
        m.d.comb += [
            taken.eq(self.tx.valid & self.tx.ready),
            self.tx.valid.eq(used != 0),
            after.eq(used - taken),
            self.room.eq((owed != depth) | taken),
            self.empty.eq(owed == 0),
            self.wake.eq(self.asked | self.coming | taken),
        ]
        m.d.sync += [used.eq(after + self.coming), owed.eq(owed - taken + self.asked)]
        for place, flit in enumerate(held):
            with m.If(self.coming & (after == place)):
                m.d.sync += flit.eq(self.flit)
            with m.Elif(taken & (place + 1 < depth)):
                m.d.sync += flit.eq(held[min(place + 1, depth - 1)])
        message = held[0].as_value()[: layout["crc"].offset]
        crc = flit_crc(message) if self._parameters.protects_links else 0
        m.d.comb += self.tx.payload.eq(Cat(message, crc))
        return m
