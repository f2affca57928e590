"""What opens a session of a link port, and what does not."""

import random
from unittest.mock import patch

import cocotb
import pytest
from amaranth import Module, Mux
from amaranth.lib.wiring import connect, flipped
from cocotb.triggers import ClockCycles

from hw.link.egress import DMA, STORES
from hw.link.port_receiver import PortReceiver
from hw.link.wire import SESSION_BITS, FlitKind, flit_layout
from sim.errors import SimulationError
from tb.drivers.lane_pair import SIDES, LanePair
from tb.drivers.payload import pack, unpack
from tb.unit.link.test_link_epochs import sealed
from tb.unit.link.test_link_lane import SIZES, bench_of, run

SESSIONS = 1 << SESSION_BITS


class OpensAnySession(PortReceiver):
    """The wrong variant: takes an OPEN of any session for one of the next."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = PortReceiver(self._parameters)
        connect(m, flipped(self), right)
        session = self.flit.session
        opens = (self.flit.kind == FlitKind.OPEN) & (session != 0)
        m.d.comb += right.flit.session.eq(Mux(opens, right.message.state.session + 1, session))
        return m


@cocotb.test()
async def late_opens_begin_nothing(dut):
    """Clean OPEN flits of the session that is, and of any but the next, come in mid-traffic: nothing is taken back, and
    no session ends."""
    bench = bench_of(dut)
    flit = flit_layout(bench.parameters)
    bench.keep_log = True
    await bench.reset()
    for side in SIDES:
        await bench.up(side)
    bench.keep_log = False
    said = {(side, port): unpack(flit, word) for _, side, port, word in bench.sent_log}
    assert len(said) == 2 * bench.parameters.links
    for _ in range(8):
        for side in SIDES:
            for _ in range(10):
                bench.packet(side, random.choice([DMA, STORES]))
        for _ in range(4):
            await ClockCycles(dut.clk, random.randint(5, 40))
            for (side, port), opened in said.items():
                own = opened["session"]
                others = [session for session in range(SESSIONS) if session != own % (SESSIONS - 1) + 1]
                late = dict(opened, session=random.choice([own, own, random.choice(others)]))
                if random.random() < 0.5:
                    late["sequence_number"] = random.getrandbits(flit["sequence_number"].width)
                bench.flits[SIDES[side], port].put(bench.now, sealed(pack(flit, **late), flit.size))
        await bench.finish(limit=4000)
    assert not bench.events["cut"] and not bench.events["again"]


def test_late_opens_begin_nothing():
    run("two", "late_opens_begin_nothing", module=__name__)


@pytest.mark.wide
def test_a_receiver_that_opens_any_session_is_caught():
    stands = pytest.raises(SimulationError, match=r"self\.now < start \+ limit")
    with patch("hw.link.port_ingress.PortReceiver", OpensAnySession), stands:
        run("two", "late_opens_begin_nothing", module=__name__, component=LanePair(SIZES["two"]))
