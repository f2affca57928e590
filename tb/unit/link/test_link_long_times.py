"""Times of a link that are too long for a test that wakes Python in every cycle: they are waited for to their end."""

from collections.abc import Iterable

import cocotb
import pytest
from amaranth import Module
from amaranth.lib.wiring import In
from cocotb.simtime import get_sim_time
from cocotb.triggers import ClockCycles, ValueChange, with_timeout

from hw.link.lane import LinkLane
from hw.link.port_sender import LinkTimers
from hw.link.wire import message_layout, state_layout
from tb.drivers.clock import start
from tb.drivers.lane_pair import SIDES, LanePair
from tb.drivers.payload import pack
from tb.runner import caught
from tb.unit.link.test_link_epochs import sealed
from tb.unit.link.test_link_lane import SIZES, pair, run
from tb.unit.link.test_link_times import AWHILE, LONG

TIMES = {"silence": 1 << 14, "retry": 1 << 18, "dead": LONG}


async def _changes(dut, names: Iterable[str], limit: int) -> dict[str, int]:
    """The times in cycles at which signals next change, each within `limit`."""

    async def change(name: str) -> int:
        await with_timeout(ValueChange(getattr(dut, name)), limit, "ns")
        return int(get_sim_time("ns"))

    changes = {name: cocotb.start_soon(change(name)) for name in names}
    return {name: await at for name, at in changes.items()}


@cocotb.test()
async def long_times_are_waited_for(dut):
    """Ports that hear a peer in no session in every cycle say and send nothing until a long silence is over, and ask
    for a session again when a long retry is over, not before."""
    parameters, lanes = SIZES["two"], pair("two")
    members = lanes.signature.flatten(lanes)
    await start(dut, ("__".join(map(str, path)) for path, member, _ in members if member.flow is In))
    message = 1 | sealed(0, state_layout(parameters).size) << 1
    messages = sum(message << port * message_layout(parameters).size for port in range(parameters.links))
    for side in SIDES:
        getattr(dut, f"{side}_timers").value = pack(LinkTimers, **TIMES)
        getattr(dut, f"{side}_tx_ready").value = (1 << parameters.links) - 1
        getattr(dut, f"{side}_tx_messages").value = messages
    began = int(get_sim_time("ns"))
    await ClockCycles(dut.clk, 4)
    said = [f"{side}_rx_messages" for side in SIDES]
    sent = [f"{side}_tx_valid" for side in SIDES]
    first = await _changes(dut, (*said, *sent), TIMES["silence"] + AWHILE)
    slack = {name: at - began - TIMES["silence"] for name, at in first.items()}
    assert all(0 <= slack[name] <= 4 for name in said), f"speaks after so many cycles more: {slack}"
    assert all(0 <= slack[name] <= 7 for name in sent), f"sends after so many cycles more: {slack}"
    await ClockCycles(dut.clk, AWHILE)
    again = await _changes(dut, sent, TIMES["retry"] + AWHILE)
    slack = {name: at - first[name] - TIMES["retry"] for name, at in again.items()}
    assert all(0 <= more <= 4 for more in slack.values()), f"asks again after so many cycles more: {slack}"


class ShortSilence(LinkLane):
    """The wrong variant: bit 14 of the time of silence is not looked at."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        for port in range(self._parameters.links):
            m.d.comb += m.submodules[f"ingress_{port}"].timers.silence[14].eq(0)
        return m


@pytest.mark.wide
def test_long_times_are_waited_for():
    run("two", "long_times_are_waited_for", module=__name__)


@pytest.mark.wide
def test_a_short_silence_is_caught():
    with caught("speaks after so many cycles more"):
        run("two", "long_times_are_waited_for", component=LanePair(SIZES["two"], ShortSilence), module=__name__)
