"""A node with a recorder beside it, which writes down what happens for a timeline in runs that ask for it
(:mod:`sim.models.recorded_events`); the hardware knows nothing of it."""

from collections.abc import Sequence

from amaranth import Cat, ClockSignal, Const, Instance, Module, Value
from amaranth.lib import data, stream

from hw.node import Node
from hw.registers.register_file import RegisterFile


def recorder(part: str, rank: Value, sources: Sequence[tuple[Value, Value]]) -> Instance:
    """Writes each of `sources`, (valid, payload), of the GPU `rank`."""
    payloads = []
    for _, payload in sources:
        flat = Value.cast(payload)
        payloads.append(Cat(flat, Const(0, 64 - len(flat))) if len(flat) < 64 else flat[:64])
    return Instance(
        "recorder",
        p_SOURCES=len(sources),
        p_PART=part,
        i_clk=ClockSignal(),
        i_id=Cat(rank, Const(0, 32 - len(rank))),
        i_valid=Cat(valid for valid, _ in sources),
        i_payload=Cat(payloads),
    )


def _padded(value: Value, width: int) -> Value:
    value = Value.cast(value)
    return Cat(value, Const(0, width - len(value))) if len(value) < width else value[:width]


def _tile(payload: data.View, va: Value | None = None) -> Value:
    """A :data:`TileEvent` of a payload with a range, a workgroup and a wavefront."""
    address = Const(0, 32) if va is None else va
    return Cat(_padded(payload.range, 8), _padded(payload.wf, 4), _padded(payload.wg, 20), _padded(address, 32))


def packet_event(header: data.View, rank: Value) -> Value:
    """A :data:`PacketEvent` of a packet's first flit."""
    return Cat(
        _padded(rank, 6),
        _padded(header.traffic_class.as_value(), 2),
        _padded(header.wf, 4),
        _padded(header.wg, 20),
        _padded(header.va, 32),
    )


class Recorded(Node):
    """A node with a recorder beside it."""

    def _connect_fault(self, m: Module, registers: RegisterFile, fault: stream.Interface) -> None:
        super()._connect_fault(m, registers, fault)
        payload = fault.payload
        self._fault = (fault.valid, Cat(payload.fault.as_value(), payload.link))

    def _counters(self, m, registers, tracker, doorbell, lanes) -> None:
        super()._counters(m, registers, tracker, doorbell, lanes)
        sources: list[tuple[Value, Value]] = []
        for port in tracker.commits:
            sources.append((port.valid & port.ready, _tile(port.payload, port.payload.va)))
        taken = {port: port.valid & port.ready for port in (tracker.blocks, self.launches, doorbell.commits)}
        sources += [
            (taken[tracker.blocks], _tile(tracker.blocks.payload, tracker.blocks.payload.va)),
            (taken[self.launches], _tile(self.launches.payload)),
            (taken[doorbell.commits], _tile(doorbell.commits.payload)),
            (tracker.events.evictions != 0, tracker.events.evictions),
            (tracker.events.fetches != 0, tracker.events.fetches),
            self._fault,
        ]
        m.submodules.recorder = recorder("node", registers.rank, sources)
