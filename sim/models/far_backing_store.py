"""The Tracker's backing store as far as it lies in channels that a slice does not have."""

from amaranth import ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from hw.config import Configuration
from hw.interfaces import BackingStorePort
from hw.messages import Messages
from sim.models.link import DelayLine

LATENCY = 100
"""Cycles from request to answer: about what a read takes in a busy channel of the slice."""
RECORDS = 1 << 16


class FarBackingStore(wiring.Component):
    """`port`: see :class:`hw.interfaces.BackingStorePort`. A write is done at once, a fetch sees all before it; record
    numbers are taken modulo :data:`RECORDS`."""

    def __init__(self, config: Configuration):
        self._config = config
        super().__init__({"port": In(BackingStorePort(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        messages = Messages(self._config)
        answer = data.StructLayout({"tag": messages.spill_tag, "record": messages.spill_record})
        m.submodules.delay = delay = DelayLine(answer, LATENCY, LATENCY + 2)
        request = self.port.request.request
        record = Signal(messages.spill_record)
        index = request.index[: (RECORDS - 1).bit_length()]
        m.submodules.records = Instance(
            "model_memory",
            p_WIDTH=messages.spill_record.size,
            p_DEPTH=RECORDS,
            i_clk=ClockSignal(),
            i_write=self.port.request.valid & request.write,
            i_write_address=index,
            i_write_data=request.record.as_value(),
            i_read_address_0=index,
            i_read_address_1=Const(0, len(index)),
            o_read_data_0=record.as_value(),
        )
        m.d.comb += [
            delay.valid.eq(self.port.request.valid & ~request.write),
            delay.payload.tag.eq(request.tag),
            delay.payload.record.eq(record),
            self.port.response.valid.eq(delay.out_valid),
            self.port.response.tag.eq(delay.out_payload.tag),
            self.port.response.record.eq(delay.out_payload.record),
        ]
        return m
