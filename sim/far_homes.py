"""The Tracker's home table as far as it lies in channels that a slice does not have."""

from amaranth import Module
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from hw.config import Configuration
from hw.messages import Messages
from hw.tracker.spill import far_signature
from sim.link import DelayLine

LATENCY = 100
"""Cycles from request to answer: about what a read takes in a busy channel of the slice."""
RECORDS = 1 << 16


class FarHomes(wiring.Component):
    """`port`: see :func:`hw.tracker.spill.far_signature`. A write is done at once, a fetch sees all before it; record
    numbers are taken modulo :data:`RECORDS`."""

    def __init__(self, config: Configuration):
        self._config = config
        super().__init__({"port": In(far_signature(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        messages = Messages(self._config)
        m.submodules.records = records = Memory(shape=messages.spill_record, depth=RECORDS, init=[])
        write, read = records.write_port(), records.read_port(domain="comb")
        answer = data.StructLayout({"tag": unsigned(6), "record": messages.spill_record})
        m.submodules.delay = delay = DelayLine(answer, LATENCY, LATENCY + 2)
        request = self.port.request.request
        m.d.comb += [
            write.addr.eq(request.index),
            write.data.eq(request.record),
            write.en.eq(self.port.request.valid & request.write),
            read.addr.eq(request.index),
            delay.valid.eq(self.port.request.valid & ~request.write),
            delay.payload.tag.eq(request.tag),
            delay.payload.record.eq(read.data),
            self.port.response.valid.eq(delay.out_valid),
            self.port.response.tag.eq(delay.out_payload.tag),
            self.port.response.record.eq(delay.out_payload.record),
        ]
        return m
