"""The ports of an ideal switch share one link's bandwidth, out of a GPU and into it, in turns; nothing is lost or
overtaken."""

import random

import cocotb
import pytest
from amaranth import Module
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from hw.config import preset
from hw.link.wire import FlitKind, flit_layout
from sim.errors import SimulationError
from sim.models.link import FRACTION_BITS, TokenBucket, sent_flit
from sim.models.shared_bandwidth import FLITS, SharedBandwidth
from tb.drivers.stream import StreamSource, never
from tb.runner import simulate

CONFIG = preset("paper", links=3, link_bandwidth=300.0, link_receive_packets=8, link_header_bytes=16)
PORTS = range(CONFIG.links)
RATE = round(CONFIG.link_bytes_per_cycle * 2**FRACTION_BITS) / 2**FRACTION_BITS


def flits(count: int) -> list[int]:
    """So many flits of packets of eight sectors."""
    layout = flit_layout(CONFIG)
    place = layout["kind"].offset
    kinds = [FlitKind.DATA if number % FLITS else FlitKind.HEADER for number in range(count)]
    return [random.getrandbits(layout.size) & ~(3 << place) | kind.value << place for kind in kinds]


def cost(flit: int) -> int:
    """Bytes that a flit takes."""
    place = flit_layout(CONFIG)["kind"].offset
    return 32 if flit >> place & 3 == FlitKind.DATA.value else CONFIG.link_header_bytes


async def started(dut) -> None:
    """Reset; nothing arrives, and everybody is ready."""
    cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
    for port in PORTS:
        getattr(dut, f"arrived__{port}").value = 0
        getattr(dut, f"onto__{port}__ready").value = 1
        getattr(dut, f"rx__{port}__ready").value = 1
    dut.rst.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0


def watch(dut, name: str) -> list[tuple[int, int, int]]:
    """Cycle, port and flit of whatever passes by the streams `name`, kept up to date."""
    seen: list[tuple[int, int, int]] = []

    async def look() -> None:
        cycle = 0
        while True:
            await ReadOnly()
            for port in PORTS:
                if int(getattr(dut, f"{name}__{port}__valid").value):
                    seen.append((cycle, port, int(getattr(dut, f"{name}__{port}__payload").value)))
            await RisingEdge(dut.clk)
            cycle += 1

    cocotb.start_soon(look())
    return seen


def right(seen: list[tuple[int, int, int]], given: list[list[int]]) -> None:
    """All came, in order; at the rate of one link, no more and no less; ports in turns."""
    for port in PORTS:
        assert [flit for _, of, flit in seen if of == port] == given[port], f"port {port} lost or turned flits"
    bytes_passed = sum(cost(flit) for _, _, flit in seen)
    span = seen[-1][0] - seen[0][0]
    assert bytes_passed <= span * RATE + 2 * 32 + 2 * RATE, "faster than one link"
    assert span <= bytes_passed / RATE + 4, "slower than one link"
    turns = [port for _, port, _ in seen[: len(seen) // 2]]
    assert all(set(turns[at : at + 3]) == set(PORTS) for at in range(3, len(turns) - 3, 3)), "not in turns"


@cocotb.test()
async def what_leaves_shares_one_link(dut):
    """Three ports that always have something to send."""
    await started(dut)
    seen = watch(dut, "onto")
    given = [flits(20 * FLITS) for _ in PORTS]
    for port in PORTS:
        StreamSource(dut, f"tx__{port}", dut.clk, never).queue.extend(given[port])
    while len(seen) < sum(map(len, given)):
        await RisingEdge(dut.clk)
    right(seen, given)


@cocotb.test()
async def what_arrives_shares_one_link(dut):
    """As much at once as the receiver lets three peers send."""
    await started(dut)
    seen = watch(dut, "rx")
    given = [flits(FLITS * CONFIG.link_receive_packets) for _ in PORTS]
    for number in range(len(given[0])):
        for port in PORTS:
            getattr(dut, f"arrived__{port}").value = given[port][number] << 1 | 1
        await RisingEdge(dut.clk)
    for port in PORTS:
        getattr(dut, f"arrived__{port}").value = 0
    assert sent_flit(CONFIG)["flit"].offset == 1
    for _ in range(20_000):
        if len(seen) == sum(map(len, given)):
            break
        await RisingEdge(dut.clk)
    right(seen, given)


class NoBucket(TokenBucket):
    """A bucket that is never empty."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.open.eq(1)
        return m


class Unbounded(SharedBandwidth):
    """A switch whose links have no bound."""

    bucket = NoBucket


@pytest.mark.parametrize("case", ["what_leaves_shares_one_link", "what_arrives_shares_one_link"])
def test_ports_share_one_link(case):
    simulate(SharedBandwidth(CONFIG), "shared_bandwidth", __name__, case)


def test_ports_without_a_bound_are_caught():
    with pytest.raises(SimulationError, match="faster than one link"):
        simulate(Unbounded(CONFIG), "shared_bandwidth", __name__, "what_leaves_shares_one_link")
