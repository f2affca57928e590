"""Who ends an epoch, what the peers are told, and the bound of the wait for acknowledgements, cycle by cycle."""

import random

import cocotb
from amaranth import Const, Module
from cocotb.triggers import ReadOnly, RisingEdge

from hw.abort import EpochAbort
from hw.config import Configuration
from hw.drain_bound import DrainBound
from hw.messages import Fault, Messages
from tb.drivers.clock import start
from tb.drivers.payload import unpack
from tb.runner import caught, simulate

CONFIG = Configuration(links=2, epoch_bits=4)
INPUTS = ("request", "arm", "number", "coming", "active", "running", "moved", "watchdog", "lost")


@cocotb.test()
async def epochs_end_for_the_causes_that_are_told(dut):
    """Random commands, notices and stalls, against a model of a few lines."""
    await start(dut, (*INPUTS, "heard__0", "heard__1", "faults__ready"))
    record = Messages(CONFIG).fault_record
    number, notice, old, ended, cause, still, expired, fault = 0, 0, False, 0, 0, 0, False, False
    armed = False
    ends = dict.fromkeys(range(1, 16), 0)
    for _ in range(20000):
        arm, coming = random.random() < 0.03, random.choice([0, notice, random.randrange(16)])
        request, moved = random.random() < 0.01, random.random() < 0.2
        lost = random.random() < 0.01
        running = armed and random.random() < 0.9
        watchdog = (
            random.choice([0, 1, 5, 9, random.getrandbits(32)]) if random.random() < 0.01 else int(dut.watchdog.value)
        )
        heard = [random.choice([0, 0, 0, random.randrange(16), number]) if random.random() < 0.1 else 0 for _ in "01"]
        ready = random.random() < 0.5
        values = (request, arm, number, coming, armed, running, moved, watchdog, lost)
        for name, value in zip(INPUTS, values, strict=True):
            getattr(dut, name).value = value
        dut.heard__0.value, dut.heard__1.value = heard
        dut.faults__ready.value = ready
        await ReadOnly()
        now = request | (expired and running) << 1 | any(item and item == number for item in heard) << 2 | lost << 3
        end = bool(now) and armed
        assert int(dut.ends.value) == end
        assert (int(dut.notice.value), int(dut.cause.value), int(dut.ended.value)) == (notice, cause, ended)
        assert int(dut.faults__valid.value) == fault
        if fault:
            found = unpack(record, int(dut.faults__payload.value))
            assert found["fault"] == Fault.WATCHDOG.value
        fault = (end and bool(now & 2)) or (fault and not ready)
        watched = running and not moved and watchdog
        expired, still = bool(watched) and still + 1 >= watchdog, still + 1 if watched else 0
        if arm:
            cause = 0
            if old or coming == notice:
                notice = 0
            old = True
        if end:
            ends[now] += 1
            notice, ended, old = number, number, arm
            cause = 0 if arm else now
        armed = (armed and not end) or arm
        number = coming if arm else number
        await RisingEdge(dut.clk)
    assert min(ends[1], ends[2], ends[4], ends[8]) > 20, ends


@cocotb.test()
async def waiting_is_bounded(dut):
    """`give_up` in the cycle after `limit` cycles of waiting without a break, and again."""
    await start(dut, ("waits", "limit"))
    waited, given = 0, 0
    limit = 1
    for _ in range(5000):
        waits = random.random() < 0.95
        if random.random() < 0.02:
            waits, limit = False, random.randrange(1, 30)
        dut.waits.value, dut.limit.value = waits, limit
        await ReadOnly()
        gives = waits and waited >= limit
        assert int(dut.give_up.value) == gives
        given += gives
        waited = waited + 1 if waits and not gives else 0
        await RisingEdge(dut.clk)
    assert given > 20


class Forgetful(EpochAbort):
    """Ends no epoch that a peer has ended."""

    def elaborate(self, platform: object) -> Module:
        self.heard = [Const(0, CONFIG.epoch_bits)] * CONFIG.links
        return super().elaborate(platform)


def test_abort():
    simulate(EpochAbort(CONFIG), "epoch_abort", __name__, "epochs_end_for_the_causes_that_are_told")


def test_an_abort_that_does_not_listen_is_noticed():
    with caught():
        simulate(Forgetful(CONFIG), "forgetful_abort", __name__, "epochs_end_for_the_causes_that_are_told")


def test_drain_bound():
    simulate(DrainBound(), "drain_bound", __name__, "waiting_is_bounded")
