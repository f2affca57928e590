"""Merges runs of commits of one WF tile into one counted message.

A run is merged only while it has to wait anyway, so an idle Tracker sees every commit in the cycle it is made.
"""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..message_parameters import MessageParameters
from ..messages import Messages


class Coalescer(wiring.Component):
    """One channel's commits on their way to the Tracker banks.

    Ports: `commits`, one a cycle; `messages`, the same commits or sums of consecutive ones of equal range, wg, wf and
    epoch (bytes added, lowest va). Latency 0 cycles when nothing waits. `commits.ready` depends on registers only: a
    commit that has to wait lands in a register, and is compared with what was gathered before it a cycle later. Two
    commits are merged only while both are below half of what `bytes` can hold.
    """

    def __init__(self, config: MessageParameters):
        commit = Messages(config).commit
        self._commit = commit
        self._half = config.count_bits - 1
        super().__init__({"commits": In(stream.Signature(commit)), "messages": Out(stream.Signature(commit))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        offered = Signal(self._commit)
        offered_valid = Signal()
        gathered = Signal(self._commit)
        gathered_valid = Signal()
        landed = Signal(self._commit)
        landed_valid = Signal()
        new = self.commits.payload

        mergeable = Signal()
        moves = Signal()
        """What landed goes on in this cycle."""
        accepted = Signal()
        m.d.comb += [
            mergeable.eq(self._mergeable(landed, gathered)),
            moves.eq(~gathered_valid | mergeable),
            self.commits.ready.eq(~landed_valid | moves),
            accepted.eq(self.commits.valid & self.commits.ready),
            self.messages.valid.eq(offered_valid | self.commits.valid),
            self.messages.payload.eq(Mux(offered_valid, offered, new)),
        ]
        behind = Signal(self._commit)
        """What is offered next, or gathered until then."""
        m.d.comb += behind.eq(landed)
        with m.If(gathered_valid):
            m.d.comb += behind.eq(gathered)
            with m.If(landed_valid & mergeable):
                m.d.comb += [
                    behind.bytes.eq(gathered.bytes + landed.bytes),
                    behind.va.eq(Mux(landed.va < gathered.va, landed.va, gathered.va)),
                ]
        waits = Signal()
        m.d.comb += waits.eq(gathered_valid | landed_valid)
        with m.If(~offered_valid):
            m.d.sync += [offered_valid.eq(self.commits.valid & ~self.messages.ready), offered.eq(new)]
        with m.Elif(self.messages.ready):
            m.d.sync += [
                offered_valid.eq(waits | self.commits.valid),
                offered.eq(Mux(waits, behind, new)),
                gathered_valid.eq(0),
                landed_valid.eq(waits & (accepted | (landed_valid & ~moves))),
            ]
        with m.Else():
            m.d.sync += [
                gathered_valid.eq(waits),
                gathered.eq(behind),
                landed_valid.eq(accepted | (landed_valid & ~moves)),
            ]
        with m.If(self.commits.ready):
            m.d.sync += landed.eq(new)
        return m

    def _mergeable(self, later: data.View, earlier: data.View) -> Value:
        same = Cat(Value.cast(later[name]) == Value.cast(earlier[name]) for name in ("range", "wg", "wf", "epoch"))
        return same.all() & ~later.bytes[self._half] & ~earlier.bytes[self._half]
