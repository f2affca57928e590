"""Gates that launch events open: a counter for each group of tiles that workgroups wait for (T3 section 7.2)."""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.message_parameters import MessageParameters
from hw.messages import Messages
from sim.models.plan_layout import GATE_LINES, GATES, Wait

LAUNCH_BITS = 16
WaitingFor = data.StructLayout({"waits": unsigned(1), "gate": range(GATES), "launches": LAUNCH_BITS, "needed": 16})
"""Whether the workgroup of the first kernel that is to begin next `waits` for a gate, or one that runs does, which one,
how many launch events have counted it up, and how many it needs."""


class LaunchGates(wiring.Component):
    """Ports: `launches` of the node; gates `gate` and, when `sliced`, `slice_gate` are asked for, `count` and
    `slice_count` of their launch events answer in the same cycle.

    After reset all counters are set to 0, one a cycle, and no launch is taken before. Which gate the tile with a wg
    number counts up is in the file +gates=<prefix>, one line per number, the same for all GPUs.
    """

    def __init__(self, config: MessageParameters, sliced: bool):
        self._config = config
        self._sliced = sliced
        super().__init__(
            {
                "launches": In(stream.Signature(Messages(config).launch_event)),
                "gate": In(range(GATES)),
                "slice_gate": In(range(GATES)),
                "count": Out(LAUNCH_BITS),
                "slice_count": Out(LAUNCH_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        swept = Signal(range(GATES + 1))
        sweeping = swept != GATES
        with m.If(sweeping):
            m.d.sync += swept.eq(swept + 1)
        counted = Signal(range(GATES))
        before = Signal(LAUNCH_BITS)
        m.submodules.places = Instance(
            "plan_memory",
            p_WIDTH=len(counted),
            p_LINES=1 << self._config.wg_bits,
            p_PER_GPU=0,
            p_KIND="gates=%s",
            i_clk=ClockSignal(),
            i_id=Const(0, 32),
            i_address=self.launches.payload.wg,
            o_data=counted,
        )
        unread = Signal(LAUNCH_BITS)
        copies = [("counts", self.gate, self.count, before)]
        copies += [("slice_counts", self.slice_gate, self.slice_count, unread)] if self._sliced else []
        for name, asked, answer, other in copies:
            m.submodules[name] = Instance(
                "model_memory",
                p_WIDTH=LAUNCH_BITS,
                p_DEPTH=GATES,
                i_clk=ClockSignal(),
                i_write=sweeping | self.launches.valid,
                i_write_address=Mux(sweeping, swept[: len(counted)], counted),
                i_write_data=Mux(sweeping, 0, (before + 1)[:LAUNCH_BITS]),
                i_read_address_0=counted,
                i_read_address_1=asked,
                o_read_data_0=other,
                o_read_data_1=answer,
            )
        m.d.comb += self.launches.ready.eq(~sweeping)
        return m


class GateWaits(wiring.Component):
    """Which workgroups wait. Ports: `rank`; `launches` of the node; while `looking`, the kernel on `side` is looked at,
    whose workgroup `launched` begins next, and whose waits are the lines from `lines` to before `ends` of its side;
    `gated`: that workgroup must wait, `advance`: its line is not needed any more; `waiting`, of side 0. `slice_open`:
    `slice_launches` launch events have counted up `slice_gate`; with `slice_wanted` a workgroup that runs needs that.

    File: +waits=<prefix>, one per GPU, see :data:`sim.models.plan_layout.Wait`.
    """

    def __init__(self, config: MessageParameters, sliced: bool):
        self._config = config
        self._sliced = sliced
        super().__init__(
            {
                "rank": In(6),
                "launches": In(stream.Signature(Messages(config).launch_event)),
                "looking": In(1),
                "side": In(1),
                "launched": In(14),
                "lines": In(13).array(2),
                "ends": In(13).array(2),
                "slice_gate": In(range(GATES)),
                "slice_launches": In(LAUNCH_BITS),
                "slice_wanted": In(1),
                "slice_open": Out(1),
                "gated": Out(1),
                "advance": Out(1),
                "waiting": Out(WaitingFor),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.gates = gates = LaunchGates(self._config, self._sliced)
        connect(m, flipped(self.launches), gates.launches)
        wait = Signal(Wait)
        line, end = Signal(13), Signal(13)
        open_ = Signal()
        m.submodules.waits = Instance(
            "plan_memory",
            p_WIDTH=Wait.size,
            p_LINES=GATE_LINES,
            p_PER_GPU=1,
            p_KIND="waits=%s",
            i_clk=ClockSignal(),
            i_id=Cat(self.rank, Const(0, 26)),
            i_address=line[: (GATE_LINES - 1).bit_length()],
            o_data=wait,
        )
        m.d.comb += [
            line.eq(Mux(self.side, self.lines[1], self.lines[0])),
            end.eq(Mux(self.side, self.ends[1], self.ends[0])),
            gates.gate.eq(wait.gate),
            gates.slice_gate.eq(self.slice_gate),
            self.slice_open.eq(gates.slice_count >= self.slice_launches),
            open_.eq(gates.count >= wait.launches),
            self.gated.eq((line != end) & (wait.workgroup == self.launched)),
            self.advance.eq(self.looking & self.gated & open_),
        ]
        # One slot after another is looked at: what one of them waits for is kept until another finds its slice there.
        kept = Signal()
        with m.If(self.slice_wanted & ~self.side):
            m.d.sync += kept.eq(~self.slice_open)
            with m.If(~self.slice_open):
                m.d.sync += [
                    self.waiting.waits.eq(1),
                    self.waiting.gate.eq(self.slice_gate),
                    self.waiting.launches.eq(gates.slice_count),
                    self.waiting.needed.eq(self.slice_launches),
                ]
        with m.Elif(self.looking & ~self.side & ~kept):
            m.d.sync += [
                self.waiting.waits.eq(self.gated & ~open_),
                self.waiting.gate.eq(wait.gate),
                self.waiting.launches.eq(gates.count),
                self.waiting.needed.eq(wait.launches),
            ]
        return m
