"""One direction of one link: bandwidth, latency and the state messages that travel against the flits."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import Shape, ShapeCastable, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import SECTOR_BYTES, Configuration
from hw.link.parameters import LinkParameters
from hw.link.wire import FlitKind, flit_layout, message_layout

FRACTION_BITS = 16
"""Bits after the point of the bandwidth in bytes a cycle."""


def own_rate(config: Configuration) -> int:
    """Bytes a cycle of a lane of a link, as a number with :data:`FRACTION_BITS` after the point."""
    return max(1, round(config.lane_bytes_per_cycle * 2**FRACTION_BITS))


def rate_shape(config: Configuration) -> Shape:
    """Of the rate of a lane of a slower link; 0 stands for :func:`own_rate`."""
    return Shape.cast(range(own_rate(config) + 1))


def sent_flit(parameters: LinkParameters) -> data.StructLayout:
    """A flit on its way, if there is one."""
    return data.StructLayout({"valid": unsigned(1), "flit": flit_layout(parameters)})


class DelayLine(wiring.Component):
    """Delivers each payload exactly `latency` cycles after it came in; at most one a cycle, never stalled.

    A circular memory of time-stamped entries: an idle line costs nothing. Ports: `valid`, `payload` in; `out_valid`,
    `out_payload`; `room`: there is a free entry. Payloads must not come in without `room`.
    """

    def __init__(self, shape: ShapeCastable, latency: int, depth: int):
        self._shape = shape
        self._latency = latency
        self._depth = 1 << (depth - 1).bit_length()
        super().__init__(
            {
                "valid": In(1),
                "payload": In(shape),
                "room": Out(1),
                "out_valid": Out(1),
                "out_payload": Out(shape),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        time_bits = self._latency.bit_length() + 1
        m.submodules.payloads = payloads = Memory(shape=self._shape, depth=self._depth, init=[])
        m.submodules.times = times = Memory(shape=unsigned(time_bits), depth=self._depth, init=[])
        write, write_time = payloads.write_port(), times.write_port()
        read, read_time = payloads.read_port(domain="comb"), times.read_port(domain="comb")
        now = Signal(time_bits)
        head = Signal(range(self._depth))
        tail = Signal(range(self._depth))
        level = Signal(range(self._depth + 1))
        m.d.sync += now.eq(now + 1)
        m.d.comb += [
            self.room.eq(level != self._depth),
            write.addr.eq(tail),
            write.data.eq(self.payload),
            write.en.eq(self.valid),
            write_time.addr.eq(tail),
            write_time.data.eq(now + self._latency),
            write_time.en.eq(self.valid),
            read.addr.eq(head),
            read_time.addr.eq(head),
            self.out_valid.eq((level != 0) & (read_time.data == now)),
        ]
        with m.If(self.out_valid):
            m.d.comb += self.out_payload.eq(read.data)
            m.d.sync += head.eq(head + 1)
        with m.If(self.valid):
            m.d.sync += tail.eq(tail + 1)
        with m.If(self.valid != self.out_valid):
            m.d.sync += level.eq(Mux(self.valid, level + 1, level - 1))
        return m


class TokenBucket(wiring.Component):
    """What one lane of a link lets pass: a bucket of one flit.

    A data flit costs 32 bytes, any other `link_header_bytes` (0: it costs only its cycle). Ports: `rate` of a link that
    is slower than `lane_bytes_per_cycle` (:func:`rate_shape`), constant while anything passes; `kind` of the flit that
    is to pass; `open`: it may; `taken`: it does; `moving`: bytes of those that did are still on their way.
    """

    def __init__(self, config: Configuration):
        self._config = config
        super().__init__(
            {"rate": In(rate_shape(config)), "kind": In(FlitKind), "open": Out(1), "taken": In(1), "moving": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        rate = own_rate(config)
        costs = SECTOR_BYTES << FRACTION_BITS, config.link_header_bytes << FRACTION_BITS
        full = max(costs) + rate
        tokens = Signal(range(full + rate + 1), init=full)
        gained = Signal(range(full + rate + 1))
        cost = Signal(range(max(costs) + 1))
        m.d.comb += [
            cost.eq(Mux(self.kind == FlitKind.DATA, *costs)),
            self.open.eq(tokens >= cost),
            self.moving.eq(tokens != full),
            gained.eq(tokens - Mux(self.taken, cost, 0) + Mux(self.rate == 0, rate, self.rate)),
        ]
        with m.If(self.taken | self.moving):
            m.d.sync += tokens.eq(Mux(gained > full, full, gained))
        return m


class LinkRate(wiring.Component):
    """How fast one direction of a lane of a link takes flits.

    Ports: `rate` as of :class:`TokenBucket`; `tx`: flits from the sender; `sent`: the same in the cycle in which they
    are accepted; `stall` stalls acceptance; `busy_cycles`: cycles in which the link was moving bytes.
    """

    def __init__(self, config: Configuration):
        self._config = config
        super().__init__(
            {
                "rate": In(rate_shape(config)),
                "tx": In(stream.Signature(flit_layout(config))),
                "sent": Out(sent_flit(config)),
                "stall": In(1),
                "busy_cycles": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bucket = bucket = TokenBucket(self._config)
        m.d.comb += [
            bucket.rate.eq(self.rate),
            bucket.kind.eq(self.tx.payload.kind),
            bucket.taken.eq(self.sent.valid),
            self.tx.ready.eq(~self.stall & bucket.open),
            self.sent.valid.eq(self.tx.valid & self.tx.ready),
            self.sent.flit.eq(self.tx.payload),
        ]
        with m.If(bucket.moving):
            m.d.sync += self.busy_cycles.eq(self.busy_cycles + 1)
        return m


class LinkModel(wiring.Component):
    """A whole link in one model: flits one way at the rate of :class:`LinkRate` and at `link_latency`, state messages
    the other way at the same latency. Between GPUs that are advanced apart `wire.h` stands for its delay lines.

    Ports: `rate`, `tx`, `stall`, `busy_cycles` as of :class:`LinkRate`; `rx`: the flits `link_latency` cycles after
    they were accepted, whose `ready` is not looked at (a port takes a flit a cycle); `rx_messages` from the receiver,
    `tx_messages` to the sender.
    """

    def __init__(self, config: Configuration):
        self._config = config
        super().__init__(
            {
                "rate": In(rate_shape(config)),
                "tx": In(stream.Signature(flit_layout(config))),
                "rx": Out(stream.Signature(flit_layout(config))),
                "rx_messages": In(message_layout(config)),
                "tx_messages": Out(message_layout(config)),
                "stall": In(1),
                "busy_cycles": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        latency = config.link_latency
        m.submodules.rate = rate = LinkRate(config)
        m.submodules.flits = flits = DelayLine(flit_layout(config), latency, latency + 2)
        m.submodules.states = states = DelayLine(self.rx_messages.state.shape(), latency, latency + 2)
        connect(m, flipped(self.tx), rate.tx)
        m.d.comb += [
            rate.rate.eq(self.rate),
            rate.stall.eq(self.stall),
            self.busy_cycles.eq(rate.busy_cycles),
            flits.valid.eq(rate.sent.valid),
            flits.payload.eq(rate.sent.flit),
            self.rx.valid.eq(flits.out_valid),
            self.rx.payload.eq(flits.out_payload),
            states.valid.eq(self.rx_messages.valid),
            states.payload.eq(self.rx_messages.state),
            self.tx_messages.valid.eq(states.out_valid),
            self.tx_messages.state.eq(states.out_payload),
        ]
        return m
