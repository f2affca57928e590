"""Each rule of the timing checker fires one cycle too early and not at the limit."""

import os

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

from hw.config import Timing, preset
from hw.messages import ColumnCommand, Messages, RowCommand
from sim.errors import SimulationError
from sim.models.timing_checker import POSTPONED, Rule, TimingChecker
from tb.drivers.payload import pack
from tb.runner import simulate

TIMING = Timing(rc=60, faw=30, ccd_s=2, ccd_l=4, ccdwl=8, rfc=100, refi=1000)
"""No rule is implied by others."""
CONFIG = preset("paper", timing=TIMING)
MESSAGES = Messages(CONFIG)
SHIFT = int(os.environ.get("CHECKER_SHIFT", "0"))
"""Added to every limit, to see this test fail."""
REST = 200

T = TIMING
LIMITS = [
    (Rule.RCD_READ, T.rcd_rd, [(0, "ACT 0")], "RD 0", 0),
    (Rule.RCD_WRITE, T.rcd_wr, [(0, "ACT 0")], "WR 0", 0),
    (Rule.RCD_WRITE, T.rcd_wr, [(0, "ACT 0")], "UPDATE 0", 0),
    (Rule.RP, T.rp, [(0, "ACT 0"), (REST, "PRE 0")], "ACT 0", 0),
    (Rule.RP, T.rp, [(0, "ACT 0"), (REST, "PREA")], "ACT 0", 0),
    (Rule.RP, T.rp, [(0, "ACT 0"), (REST, "PREA")], "REF", 0),
    (Rule.RP, T.rp, [(0, "ACT 5"), (REST, "PRE 5")], "REF", 0),
    (Rule.RAS, T.ras, [(0, "ACT 3")], "PRE 3", 0),
    (Rule.RAS, T.ras, [(0, "ACT 3")], "PREA", 0),
    (Rule.RC, T.rc, [(0, "ACT 0"), (T.ras, "PRE 0")], "ACT 0", T.ras),
    (Rule.CCD_S, T.ccd_s, [(0, "ACT 0"), (REST, "ACT 1"), (REST, "RD 0")], "RD 1", 0),
    (Rule.CCD_S, T.ccd_s, [(0, "ACT 0"), (REST, "ACT 1"), (REST, "UPDATE 0")], "WR 1", 0),
    (Rule.CCD_L, T.ccd_l, [(0, "ACT 0"), (REST, "ACT 4"), (REST, "RD 0")], "RD 4", 0),
    (Rule.CCD_L, T.ccd_l, [(0, "ACT 0"), (REST, "WR 0")], "UPDATE 0", 0),
    (Rule.CCDWL, T.ccdwl, [(0, "ACT 0"), (REST, "ACT 4"), (REST, "UPDATE 0")], "WR 4", 0),
    (Rule.RRD, T.rrd, [(0, "ACT 0")], "ACT 1", 0),
    (Rule.FAW, T.faw, [(0, "ACT 0"), *((T.rrd, f"ACT {n}") for n in (1, 2, 3))], "ACT 4", 3 * T.rrd),
    (Rule.RTP, T.rtp, [(0, "ACT 0"), (REST, "RD 0")], "PRE 0", 0),
    (Rule.RTP, T.rtp, [(0, "ACT 0"), (REST, "RD 0")], "PREA", 0),
    (Rule.RTW, T.rtw, [(0, "ACT 0"), (REST, "ACT 1"), (REST, "RD 0")], "WR 1", 0),
    (Rule.RTW, T.rtw, [(0, "ACT 0"), (REST, "ACT 1"), (REST, "RD 0")], "UPDATE 1", 0),
    (Rule.WTR, T.wtr, [(0, "ACT 0"), (REST, "ACT 1"), (REST, "WR 0")], "RD 1", 0),
    (Rule.WTR, T.wtr, [(0, "ACT 0"), (REST, "ACT 1"), (REST, "UPDATE 0")], "RD 1", 0),
    (Rule.WTP, T.wtp, [(0, "ACT 0"), (REST, "WR 0")], "PRE 0", 0),
    (Rule.WTP, T.wtp, [(0, "ACT 0"), (REST, "UPDATE 0")], "PREA", 0),
    (Rule.RFC, T.rfc, [(0, "REF")], "ACT 9", 0),
    (Rule.RFC, T.rfc, [(0, "REF")], "REF", 0),
]
"""Rule, its limit, commands before (cycles since the one before, command), the command that must wait, and how much of
the limit has passed since the command that starts it."""
STATES = [
    (Rule.ACT_OPEN, [(0, "ACT 0"), (REST, "ACT 0")]),
    (Rule.COLUMN_CLOSED, [(0, "RD 0")]),
    (Rule.COLUMN_CLOSED, [(0, "ACT 1"), (REST, "WR 2")]),
    (Rule.COLUMN_CLOSED, [(0, "ACT 1"), (REST, "PRE 1"), (REST, "UPDATE 1")]),
    (Rule.COLUMN_CLOSED, [(0, "ACT 1"), (REST, "PREA"), (REST, "RD 1")]),
    (Rule.REFRESH_OPEN, [(0, "ACT 0"), (REST, "REF")]),
    (Rule.ENCODING, [(0, "ROW3")]),
    (Rule.ENCODING, [(0, "ACT 0"), (REST, "COLUMN3")]),
    (Rule.NONE, [(0, "ACT 0"), (REST, "PRE 0"), (REST, "ACT 0"), (REST, "RD 0"), (REST, "PREA"), (REST, "REF")]),
]


def drive(dut, command):
    """Put `command` on its bus for this cycle."""
    name, _, bank = command.partition(" ")
    if name in ("RD", "WR", "UPDATE", "COLUMN3"):
        value = pack(MESSAGES.column_command, valid=1, bank=int(bank or 0))
        code = 3 if name == "COLUMN3" else ColumnCommand[name].value
        dut.column.value = value | code << MESSAGES.column_command["command"].offset
        return
    everything = name == "PREA"
    value = pack(MESSAGES.row_command, valid=1, all=everything, bank=int(bank or 0))
    code = 3 if name == "ROW3" else RowCommand["PRE" if everything else name].value
    dut.row.value = value | code << MESSAGES.row_command["command"].offset


async def rule_after(dut, commands, refresh=0):
    """The rule that the commands violate, from reset."""
    dut.refresh.value = refresh
    dut.rst.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await Timer(REST, unit="ns")
    await RisingEdge(dut.clk)
    for gap, command in commands:
        if gap > 1:
            await Timer(gap - 1, unit="ns")
        if gap:
            await RisingEdge(dut.clk)
        drive(dut, command)
        await RisingEdge(dut.clk)
        dut.row.value = 0
        dut.column.value = 0
        await Timer(0.1, unit="ns")
        # the command took the cycle that just ended; the next gap counts from it
        if int(dut.violation.value):
            return Rule(int(dut.rule.value))
    await RisingEdge(dut.clk)
    return Rule(int(dut.rule.value)) if int(dut.violation.value) else Rule.NONE


def distances(before, command, gap):
    """Commands with the gaps as cycles between the ends of one and the start of the next."""
    return [(max(0, cycles - 1), text) for cycles, text in [*before, (gap, command)]]


@cocotb.test()
async def every_limit(dut):
    Clock(dut.clk, 1, unit="ns").start()
    for rule, limit, before, command, passed in LIMITS:
        gap = limit - passed + SHIFT
        seen = await rule_after(dut, distances(before, command, gap))
        assert seen == Rule.NONE, f"{rule} at its limit before {command}: {seen}"
        seen = await rule_after(dut, distances(before, command, gap - 1))
        assert seen == rule, f"{rule} one cycle early before {command}: {seen}"


@cocotb.test()
async def every_state(dut):
    Clock(dut.clk, 1, unit="ns").start()
    for rule, commands in STATES:
        seen = await rule_after(dut, [(max(0, gap - 1), text) for gap, text in commands])
        assert seen == rule, f"{rule} with {commands}: {seen}"


@cocotb.test()
async def late_refresh(dut):
    Clock(dut.clk, 1, unit="ns").start()
    limit = POSTPONED * TIMING.refi
    for gap, refresh, rule in (
        (limit, 1, Rule.NONE),
        (limit + 1, 1, Rule.REFRESH_LATE),
        (limit + 1, 0, Rule.NONE),
    ):
        seen = await rule_after(dut, distances([(0, "REF")], "REF", gap), refresh)
        assert seen == rule, f"refresh after {gap} cycles: {seen}"


@pytest.mark.parametrize("testcase", ["every_limit", "every_state", "late_refresh"])
def test_timing_checker(testcase):
    simulate(TimingChecker(CONFIG), "timing_checker", __name__, testcase)


@pytest.mark.parametrize("shift", ["-1", "1"])
def test_a_wrong_limit_is_noticed(shift):
    with pytest.raises(SimulationError):
        simulate(TimingChecker(CONFIG), "timing_checker", __name__, "every_limit", environment={"CHECKER_SHIFT": shift})
