"""Merges runs of commits of one WF tile into one counted message.

A run is merged only while it has to wait anyway, so an idle Tracker sees every commit in the cycle it is made.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..message_parameters import MessageParameters
from ..messages import Messages


class Coalescer(wiring.Component):
    """One channel's commits on their way to the Tracker banks.

    Ports: `commits`, one a cycle; `messages`, the same commits or sums of consecutive ones of equal range, wg, wf and
    epoch (bytes added, lowest va). Latency 0 cycles when nothing waits. `commits.ready` depends on registers and the
    commit's payload only. Two commits are merged only while both are below half of what `bytes` can hold.
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
        new = self.commits.payload

        mergeable = Signal()
        m.d.comb += mergeable.eq(
            (new.range == gathered.range)
            & (new.wg == gathered.wg)
            & (new.wf == gathered.wf)
            & (new.epoch == gathered.epoch)
            & ~new.bytes[self._half]
            & ~gathered.bytes[self._half]
        )
        accepted = Signal()
        m.d.comb += [
            self.commits.ready.eq(~gathered_valid | mergeable),
            accepted.eq(self.commits.valid & self.commits.ready),
            self.messages.valid.eq(offered_valid | self.commits.valid),
        ]
        with m.If(offered_valid):
            m.d.comb += self.messages.payload.eq(offered)
        with m.Else():
            m.d.comb += self.messages.payload.eq(new)

        merged = Signal(self._commit)
        m.d.comb += merged.eq(new)
        with m.If(gathered_valid):
            m.d.comb += merged.eq(gathered)
            with m.If(self.commits.valid & mergeable):
                m.d.comb += [
                    merged.bytes.eq(gathered.bytes + new.bytes),
                    merged.va.eq(Mux(new.va < gathered.va, new.va, gathered.va)),
                ]
        with m.If(~offered_valid):
            m.d.sync += offered_valid.eq(self.commits.valid & ~self.messages.ready)
            with m.If(self.commits.valid):
                m.d.sync += offered.eq(new)
        with m.Elif(self.messages.ready):
            m.d.sync += [offered_valid.eq(gathered_valid | accepted), gathered_valid.eq(0)]
            with m.If(gathered_valid | accepted):
                m.d.sync += offered.eq(merged)
        with m.Elif(accepted):
            m.d.sync += [gathered_valid.eq(1), gathered.eq(merged)]
        return m
