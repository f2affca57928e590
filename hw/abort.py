"""End of an epoch that cannot end by itself or is hurt: by the host, a watchdog, a memory's error, or a peer's end.

What an ended epoch leaves behind goes away as after any other end (hw/DECISIONS.md 41). Here is decided that it ends,
and what the peers are told: the number of the epoch, in every state message, so that a message that is lost costs time
only.
"""

from amaranth import Cat, Module, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .link.parameters import LinkParameters
from .messages import Fault, Messages

WATCHDOG_BITS = 32

AbortCause = data.StructLayout(dict.fromkeys(("host", "watchdog", "peer", "memory"), unsigned(1)))
"""Who ended the epoch: the host, the watchdog of this GPU, a peer that says so, or a word lost in a memory."""


class EpochAbort(wiring.Component):
    """Ends epoch `number` of a node, and says so to its peers.

    Ports: `request`: the host's (pulse); `arm`: epoch `coming` is called for (pulse); `number`: that of the epoch which
    is armed or called for, if `active`; `running`: it is armed and not done; `moved`: an access, a packet or a commit
    of it moved; `lost`: a word in a memory of the node is (pulse); `watchdog`: after so many cycles in which nothing
    moved, it is ended (0: never); `heard`: per port and lane, the number that the peer says it has ended (0: none), for
    a cycle or longer; `ends`: the epoch ends now (0 cycles from `request`, `heard` and `lost`, 2 from the last cycle
    without movement); `notice`: number of the last epoch that ended so, 0: none; `cause`, `ended`: why, and which one,
    from the cycle after `ends` until the next `arm`; `faults`: a record WATCHDOG when the watchdog ended it; a record
    that meets an untaken one is dropped.

    A node that is in no epoch passes on no notice that it hears; it does once it arms that epoch. A notice is said
    throughout the next epoch too, for peers that missed it, and taken back with the `arm` after that, or one of its own
    number: until then no peer is to arm the number anew.
    """

    def __init__(self, config: LinkParameters):
        messages = Messages(config)
        super().__init__(
            {
                "request": In(1),
                "arm": In(1),
                "number": In(messages.epoch),
                "coming": In(messages.epoch),
                "active": In(1),
                "running": In(1),
                "moved": In(1),
                "lost": In(1),
                "watchdog": In(WATCHDOG_BITS),
                "heard": In(messages.epoch).array(config.link_lanes),
                "ends": Out(1),
                "notice": Out(messages.epoch),
                "cause": Out(AbortCause),
                "ended": Out(messages.epoch),
                "faults": Out(stream.Signature(messages.fault_record)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cause = Signal(AbortCause)
        still = Signal(WATCHDOG_BITS)
        expired = Signal()
        watched = Signal()
        m.d.comb += [
            watched.eq(self.running & ~self.moved & (self.watchdog != 0)),
            cause.host.eq(self.request),
            cause.watchdog.eq(expired & self.running),
            cause.memory.eq(self.lost),
            cause.peer.eq(Cat((heard != 0) & (heard == self.number) for heard in self.heard).any()),
            self.ends.eq(self.active & cause.as_value().any()),
            self.faults.payload.fault.eq(Fault.WATCHDOG),
        ]
        m.d.sync += expired.eq(watched & (still >= self.watchdog - 1))
        with m.If(watched):
            m.d.sync += still.eq(still + 1)
        with m.Else():
            m.d.sync += still.eq(0)

        old = Signal()
        """The notice is of the epoch before the last one."""
        with m.If(self.arm):
            m.d.sync += [self.cause.eq(0), old.eq(1)]
            with m.If(old | (self.coming == self.notice)):
                m.d.sync += self.notice.eq(0)
        with m.If(self.ends):
            m.d.sync += [self.notice.eq(self.number), old.eq(self.arm), self.ended.eq(self.number)]
            with m.If(~self.arm):
                m.d.sync += self.cause.eq(cause)

        with m.If(self.ends & cause.watchdog):
            m.d.sync += self.faults.valid.eq(1)
        with m.Elif(self.faults.ready):
            m.d.sync += self.faults.valid.eq(0)
        return m
