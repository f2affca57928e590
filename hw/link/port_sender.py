"""Sending side of one link port: which flit is next, and everything it may have to wait for.

Packets go in order of their sequence numbers. What the peer's receiver says of itself (state messages) acknowledges
them, frees its buffers, grants an epoch and asks for packets again; nothing else decides, so a message that is lost or
comes late costs time only. Go-back-N: what was sent and not acknowledged is sent anew from its first packet.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from ..messages import Messages
from .parameters import LinkParameters
from .port_queue import PortQueue
from .wire import ATTEMPT_BITS, SESSION_BITS, FlitKind, descriptor_layout, message_layout

TIMER_BITS = 24

LinkTimers = data.StructLayout({"silence": TIMER_BITS, "retry": TIMER_BITS, "dead": TIMER_BITS})
"""Programmed times in cycles, each at least 1. `silence`: longer than anything can be under way on the wire; after
reset a port neither speaks nor hears for so long. `retry`: without progress for so long, send again; longer than a
round trip. `dead`: without a message for so long, the link is dead; longer than `silence` and a few round trips."""


class PortState(enum.Enum, shape=2):
    """SILENT after reset, LISTENING for the session the peer is in, OPENING the next one, UP."""

    SILENT = 0
    LISTENING = 1
    OPENING = 2
    UP = 3


def chosen_flit(parameters: LinkParameters) -> data.StructLayout:
    """A flit before its data is read: `descriptor` and `place` say which."""
    return data.StructLayout(
        {
            "kind": FlitKind,
            "last": 1,
            "place": 3,
            "sequence_number": parameters.link_sequence_bits,
            "session": SESSION_BITS,
            "attempt": ATTEMPT_BITS,
            "descriptor": descriptor_layout(parameters),
        }
    )


class PortSender(wiring.Component):
    """One port's queue, session, credits, grant and timers.

    A packet is sent for the first time only in the epoch of the peer's grant, into a free buffer of the peer, and not
    while `discard`; what was sent once is sent again whatever the grant, since the peer must have it to go on. A
    session ends when the peer's receiver is in none (it was reset) or says nothing for the time `dead`; and with
    protection of links, while `discard`, when the peer says of fewer packets that they have come than it acknowledged,
    and nothing is under way. Its packets that were not acknowledged stay, and count as never sent.

    Ports: `timers`: see :data:`LinkTimers`; `push`, `descriptor`; `message`: from the peer's receiver, checked;
    `discard`: take out what was never sent; `give_up`: the session ends if something is in the queue; `asks`: wants a
    turn at the slots, depends on registers, `room` and `discard` only; `turn`: has it; `flit`: what is read in that
    turn; `room`: there is room for a flit; `release`, `released`, `unsent`, `release_taken`, `all_left`: see
    :class:`hw.link.port_queue.PortQueue`; `left`: a packet was sent to its end for the first time in the session;
    `block_leaves`: of a packet with `mark`; `heard`: the epoch that the peer says it has aborted, as long as it has
    just said so, else 0; `up`: in a session; `cut`: a session ended (pulse); `dead`: nothing was heard for the time
    `dead`, until the next session; `again`: packets are sent again (pulse); `no_credit`, `no_grant`: the head waits for
    that; `empty`: no descriptor is left; with protection of memories `queue_wrong`, a pulse: see `wrong` of the queue.
    Rate: one flit a cycle without bubbles between packets. Latency: `push` to `asks` 1 cycle, `message` to `asks` 2.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        descriptor = descriptor_layout(parameters)
        super().__init__(
            {
                "timers": In(LinkTimers),
                "push": In(1),
                "descriptor": In(descriptor),
                "message": In(message_layout(parameters)),
                "discard": In(1),
                "give_up": In(1),
                "asks": Out(1),
                "turn": In(1),
                "flit": Out(chosen_flit(parameters)),
                "room": In(1),
                "release": Out(1),
                "released": Out(descriptor),
                "unsent": Out(1),
                "release_taken": In(1),
                "left": Out(1),
                "block_leaves": Out(1),
                "heard": Out(Messages(parameters).epoch),
                "all_left": Out(1),
                "up": Out(1),
                "cut": Out(1),
                "dead": Out(1),
                "again": Out(1),
                "no_credit": Out(1),
                "no_grant": Out(1),
                "empty": Out(1),
                **({"queue_wrong": Out(1)} if parameters.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = PortQueue(self._parameters)
        m.d.comb += [
            queue.push.eq(self.push),
            queue.descriptor.eq(self.descriptor),
            queue.discard.eq(self.discard),
            queue.release_taken.eq(self.release_taken),
            queue.cut.eq(self.cut),
            queue.back.eq(self.again),
            self.release.eq(queue.release),
            self.released.eq(queue.released),
            self.unsent.eq(queue.unsent),
            self.left.eq(queue.leaves),
            self.block_leaves.eq(queue.leaves & queue.head.mark),
            self.all_left.eq(queue.all_left),
            self.empty.eq(queue.empty),
            *([self.queue_wrong.eq(queue.wrong)] if self._parameters.protects_memories else []),
        ]
        state = Signal(PortState)
        session = Signal(SESSION_BITS)
        attempt = Signal(ATTEMPT_BITS)
        takes_back = Signal()
        self._session(m, state, session, takes_back)
        limit, granted, epoch = self._messages(m, queue, session, attempt, takes_back)
        self._turns(m, queue, state, session, attempt, limit, granted, epoch)
        return m

    def _session(self, m: Module, state: Signal, session: Signal, takes_back: Signal) -> None:
        """Come into a session, and notice its end."""
        said = self.message.state.session
        heard = Signal()
        guard = Signal(TIMER_BITS)
        guarded = Signal(init=1)
        quiet = Signal(TIMER_BITS)
        follows = Signal(SESSION_BITS)
        m.d.comb += [
            heard.eq(self.message.valid & (state != PortState.SILENT)),
            follows.eq(Mux(said == 2**SESSION_BITS - 1, 1, said + 1)),
            self.up.eq(state == PortState.UP),
        ]
        # A session is left alone at first: messages of before its beginning may still come.
        with m.If(guarded):
            m.d.sync += guard.eq(guard + 1)
            with m.If(guard >= self.timers.silence):
                m.d.sync += [guarded.eq(0), guard.eq(0)]

        silent_for_long = Signal()
        m.d.comb += silent_for_long.eq(quiet >= self.timers.dead)
        with m.If(heard & ((state != PortState.UP) | (said == session))):
            m.d.sync += quiet.eq(0)
        with m.Elif(silent_for_long):
            m.d.sync += [quiet.eq(0), self.dead.eq(1)]
        with m.Elif(state != PortState.SILENT):
            m.d.sync += quiet.eq(quiet + 1)

        with m.If(state == PortState.SILENT):
            with m.If(~guarded):
                m.d.sync += state.eq(PortState.LISTENING)
        with m.Elif(self.up):
            with m.If(heard & (said == 0) & ~guarded):
                m.d.comb += self.cut.eq(1)
                m.d.sync += [
                    state.eq(PortState.OPENING),
                    session.eq(Mux(session == 2**SESSION_BITS - 1, 1, session + 1)),
                ]
            # What the peer took back is not in the queue, so `give_up` would not end this session: the two count apart.
            # Within an epoch it goes on all the same, or later packets would come in the place of the lost ones.
            with m.Elif((silent_for_long & ~heard) | (self.give_up & ~self.empty) | (takes_back & self.discard)):
                m.d.comb += self.cut.eq(1)
                m.d.sync += state.eq(PortState.LISTENING)
        with m.Elif(heard):
            # The peer may be in a session that was not the one heard last: it opens only the one after its own.
            with m.If((state == PortState.OPENING) & (said == session)):
                m.d.sync += [state.eq(PortState.UP), guarded.eq(1), guard.eq(0), self.dead.eq(0)]
            with m.Else():
                m.d.sync += state.eq(PortState.OPENING)
                with m.If((state == PortState.LISTENING) | (said != 0)):
                    m.d.sync += session.eq(follows)

    def _messages(
        self, m: Module, queue: PortQueue, session: Signal, attempt: Signal, takes_back: Signal
    ) -> tuple[Signal, Signal, data.View]:
        """Follow the peer's receiver; returns the first packet without a buffer, and the grant.

        `takes_back`: all was acknowledged, and the peer says now that less has come."""
        bits = self._parameters.link_sequence_bits
        said = self.message.state
        counts = Signal()
        freed = Signal(bits)
        limit = Signal(bits)
        granted = Signal()
        epoch = Signal(Messages(self._parameters).epoch)
        retry = Signal(TIMER_BITS)
        m.d.comb += counts.eq(self.message.valid & (said.session == session) & self.up)
        m.d.sync += self.heard.eq(Mux(counts, said.notice, 0))

        # Numbers that a late or wrong message brings are taken only where they say something new: acknowledged up to
        # what was sent, freed up to what was acknowledged.
        new = Signal()
        freed_new = Signal()
        asked_again = Signal()
        first = Signal(bits)
        m.d.sync += asked_again.eq(0)
        if self._parameters.protects_links:
            m.d.sync += [queue.acknowledge.eq(counts & new), queue.until.eq(said.expected)]
            m.d.comb += takes_back.eq(counts & ~queue.unacknowledged & (said.expected != first))
        else:
            m.d.sync += [queue.acknowledge.eq(queue.done), queue.until.eq(queue.sequence_number + 1)]
        m.d.comb += [
            first.eq(Mux(queue.acknowledge, queue.until, queue.first)),
            new.eq(((said.expected - first)[:bits] <= (queue.sent - first)[:bits]) & (said.expected != first)),
            freed_new.eq((said.freed - freed)[:bits] <= (queue.sent - freed)[:bits]),
        ]
        with m.If(~self.up):
            m.d.sync += [
                freed.eq(queue.first),
                limit.eq(queue.first + self._parameters.link_receive_packets),
                granted.eq(0),
                attempt.eq(0),
            ]
        with m.Elif(counts):
            m.d.sync += [granted.eq(said.granted), epoch.eq(said.epoch)]
            with m.If(freed_new):
                m.d.sync += [freed.eq(said.freed), limit.eq(said.freed + self._parameters.link_receive_packets)]
            with m.If(said.attempt != attempt):
                m.d.sync += [attempt.eq(said.attempt), asked_again.eq(1)]

        late = Signal()
        m.d.comb += [
            late.eq(queue.unacknowledged & (retry >= self.timers.retry)),
            self.again.eq((late | asked_again) & self.up & self._parameters.protects_links),
        ]
        with m.If(self.again | queue.acknowledge | ~queue.unacknowledged):
            m.d.sync += retry.eq(0)
        with m.Else():
            m.d.sync += retry.eq(retry + 1)
        return limit, granted, epoch

    def _turns(
        self,
        m: Module,
        queue: PortQueue,
        state: Signal,
        session: Signal,
        attempt: Signal,
        limit: Signal,
        granted: Signal,
        epoch: data.View,
    ) -> None:
        """Choose the next flit."""
        begun = Signal()
        place = Signal(3)
        pause = Signal(TIMER_BITS)
        opens = Signal()
        waits = Signal()
        credit = Signal()
        may_start = Signal()
        final = Signal()
        m.d.comb += [
            opens.eq((state == PortState.OPENING) & (pause == 0)),
            waits.eq(self.up & queue.head_valid & queue.fresh & ~begun & ~self.discard),
            credit.eq(queue.sequence_number != limit),
            self.no_credit.eq(waits & ~credit),
            self.no_grant.eq(waits & ~(granted & (queue.head.epoch == epoch))),
            may_start.eq(~queue.fresh | (credit & granted & (queue.head.epoch == epoch) & ~self.discard)),
            self.asks.eq(self.room & (opens | (self.up & queue.head_valid & (begun | may_start)))),
            final.eq(begun & (place == queue.head.length)),
            queue.started.eq(self.turn & self.up & ~begun),
            queue.done.eq(self.turn & self.up & final),
        ]
        with m.If(opens & self.turn):
            m.d.sync += pause.eq(self.timers.retry)
        with m.Elif(state != PortState.OPENING):
            m.d.sync += pause.eq(0)
        with m.Elif(pause != 0):
            m.d.sync += pause.eq(pause - 1)

        with m.If(queue.dropped | ~self.up):
            m.d.sync += begun.eq(0)
        with m.Elif(self.turn):
            m.d.sync += [begun.eq(~final), place.eq(Mux(begun, place + 1, 0))]

        flit = self.flit
        m.d.comb += [
            flit.last.eq(self.up & final),
            flit.place.eq(place),
            flit.sequence_number.eq(Mux(self.up, queue.sequence_number, queue.first)),
            flit.session.eq(session),
            flit.attempt.eq(attempt),
            flit.descriptor.eq(queue.head),
        ]
        with m.If(~self.up):
            m.d.comb += flit.kind.eq(FlitKind.OPEN)
        with m.Elif(begun):
            m.d.comb += flit.kind.eq(FlitKind.DATA)
        with m.Else():
            m.d.comb += flit.kind.eq(FlitKind.HEADER)
