"""Receiving side of one link port, up to the packet: takes packets whole, in order and clean, and says where it is.

It waits for nothing: a packet that it cannot take is sent again. What is in a packet is not its business
(:mod:`hw.link.packet_writer`).
"""

from amaranth import Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..messages import Messages
from .parameters import LinkParameters
from .port_sender import LinkTimers
from .wire import ATTEMPT_BITS, SESSION_BITS, FlitKind, flit_layout, message_layout


class PortReceiver(wiring.Component):
    """Session, sequence and buffers of one port's arrivals.

    A flit is looked at only when it is clean and of the session. Of the expected packet, a HEADER begins it (anew), the
    next DATA flit continues it, all else of it is ignored; a packet behind it is acknowledged again, one beyond it is
    dropped. When flits are missing, it asks once for the packet again, and not a second time before it hears that the
    sender has followed (`attempt`).

    Ports: `timers`: `silence`; `valid`, `clean`, `flit`: what arrived, at most one flit a cycle, never refused;
    `granted`, `epoch`: packets of that epoch are taken; `notice`: for the peer; `looks`: this flit may be a header,
    whether clean and expected or not: right behind a header that was taken it makes its packet void, so that the one
    may use the cycle to look up addresses; `header`: this flit is the header of the expected packet, `sector`: its next
    sector, `place` of buffer `buffer`; `complete`: with its last sector, the packet is taken; `freed`: a buffer is free
    again, the oldest in use; `message`: for the peer's sender; `up`: in a session; `busy`: a message is due or buffers
    are in use. Latency: flit to `header`, `sector` and `complete` 0 cycles, to `message` 1 cycle.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        super().__init__(
            {
                "timers": In(LinkTimers),
                "valid": In(1),
                "clean": In(1),
                "flit": In(flit_layout(parameters)),
                "granted": In(1),
                "epoch": In(Messages(parameters).epoch),
                "notice": In(Messages(parameters).epoch),
                "looks": Out(1),
                "header": Out(1),
                "sector": Out(1),
                "place": Out(3),
                "buffer": Out(max(1, (parameters.link_receive_packets - 1).bit_length())),
                "complete": Out(1),
                "freed": In(1),
                "message": Out(message_layout(parameters)),
                "up": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parameters = self._parameters
        bits, packets = parameters.link_sequence_bits, parameters.link_receive_packets
        flit = self.flit
        session = Signal(SESSION_BITS)
        expected = Signal(bits)
        freed = Signal(bits)
        attempt = Signal(ATTEMPT_BITS)
        begun = Signal()
        following = Signal(3)
        opening = Signal()

        ahead = Signal(bits)
        taken = Signal()
        here = Signal()
        behind = Signal()
        packet = Signal()
        room = Signal()
        m.d.comb += [
            taken.eq(self.valid & self.clean & self.up & (flit.session == session) & ~opening),
            packet.eq(taken & (flit.kind != FlitKind.OPEN)),
            ahead.eq(flit.sequence_number - expected),
            here.eq(packet & (ahead == 0)),
            behind.eq(packet & ahead[-1]),
            room.eq((expected - freed)[:bits] != packets),
            self.up.eq(session != 0),
            self.place.eq(following),
            self.buffer.eq(expected[: (packets - 1).bit_length()] if packets > 1 else 0),
            self.header.eq(here & room & (flit.kind == FlitKind.HEADER)),
            self.sector.eq(here & room & (flit.kind == FlitKind.DATA) & begun & (flit.place == following)),
            self.complete.eq(self.sector & (flit.last | (following == 7))),
        ]
        after_header = Signal()
        m.d.comb += self.looks.eq(self.valid & (flit.kind == FlitKind.HEADER))
        m.d.sync += after_header.eq(self.header)
        with m.If(self.complete):
            m.d.sync += [expected.eq(expected + 1), begun.eq(0)]
        with m.Elif(self.header):
            m.d.sync += [begun.eq(1), following.eq(0)]
        with m.Elif(after_header & self.looks):
            m.d.sync += begun.eq(0)
        with m.Elif(self.sector):
            m.d.sync += following.eq(following + 1)
        with m.If(self.freed):
            m.d.sync += freed.eq(freed + 1)

        missed = Signal()
        m.d.comb += missed.eq(
            (packet & ~behind & (ahead != 0) & (flit.attempt == attempt))
            | (here & (flit.kind == FlitKind.DATA) & (~begun | (flit.place > following)) & (flit.attempt == attempt))
        )
        with m.If(missed):
            m.d.sync += attempt.eq(attempt + 1)

        deaf = Signal(init=1)
        opened = self._open(m, deaf, session, opening, expected, freed, attempt, begun)
        again = Signal()
        m.d.comb += again.eq(taken & (behind | (flit.kind == FlitKind.OPEN)))
        self._say(m, deaf, session, expected, freed, attempt, opened | self.complete | self.freed | missed | again)
        return m

    def _open(
        self,
        m: Module,
        deaf: Signal,
        session: Signal,
        opening: Signal,
        expected: Signal,
        freed: Signal,
        attempt: Signal,
        begun: Signal,
    ) -> Signal:
        """Begin a session when asked to, once the packets of the one before are out of their buffers."""
        flit = self.flit
        silence = Signal.like(self.timers.silence)
        next_session = Signal(SESSION_BITS)
        next_expected = Signal.like(expected)
        opened = Signal()
        asks = Signal()
        follows = Signal(SESSION_BITS)
        with m.If(deaf):
            m.d.sync += silence.eq(silence + 1)
            with m.If(silence >= self.timers.silence):
                m.d.sync += deaf.eq(0)
        m.d.comb += [
            follows.eq(Mux(session == 2**SESSION_BITS - 1, 1, session + 1)),
            asks.eq(
                self.valid
                & self.clean
                & (flit.kind == FlitKind.OPEN)
                & (flit.session != 0)
                & (~self.up | (flit.session == follows))
                & ~deaf
                & ~opening
            ),
            opened.eq(opening & (expected == freed)),
        ]
        with m.If(asks):
            m.d.sync += [opening.eq(1), next_session.eq(flit.session), next_expected.eq(flit.sequence_number)]
        with m.If(opened):
            m.d.sync += [
                opening.eq(0),
                session.eq(next_session),
                expected.eq(next_expected),
                freed.eq(next_expected),
                attempt.eq(0),
                begun.eq(0),
            ]
        return opened

    def _say(
        self,
        m: Module,
        deaf: Signal,
        session: Signal,
        expected: Signal,
        freed: Signal,
        attempt: Signal,
        changed: Value,
    ) -> None:
        """Send the state when it has changed, and repeat it while it does not."""
        due = Signal()
        waited = Signal(range(self._parameters.link_repeat + 1))
        granted = Signal.like(self.granted)
        epoch = Signal.like(self.epoch)
        notice = Signal.like(self.notice)
        state = self.message.state
        m.d.sync += [granted.eq(self.granted), epoch.eq(self.epoch), notice.eq(self.notice)]
        m.d.sync += due.eq(changed | (granted != self.granted) | (epoch != self.epoch) | (notice != self.notice))
        m.d.comb += [
            self.message.valid.eq((due | (waited == self._parameters.link_repeat)) & ~deaf),
            state.session.eq(session),
            state.expected.eq(expected),
            state.freed.eq(freed),
            state.granted.eq(granted & self.up),
            state.epoch.eq(epoch),
            state.attempt.eq(attempt),
            state.notice.eq(notice),
            self.busy.eq(due | (expected != freed)),
        ]
        with m.If(self.message.valid):
            m.d.sync += waited.eq(0)
        with m.Elif(waited != self._parameters.link_repeat):
            m.d.sync += waited.eq(waited + 1)
