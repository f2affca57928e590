"""What slots are given out by: ports of any sends of a packet, counted out by hand, around the end of the table."""

import random
from unittest.mock import patch

import cocotb
import pytest
from amaranth.hdl import Value
from cocotb.triggers import Timer

from hw.link.parameters import LinkParameters
from hw.link.send_routes import SendRoutes
from hw.link.wire import routes_layout, sends_layout
from tb.drivers.payload import pack, unpack
from tb.golden.packets import packet_routes
from tb.runner import caught, simulate

SIZES = {
    "two_ports": LinkParameters(links=2),
    "seven_ports": LinkParameters(links=7, ranges=8),
    "three_ports": LinkParameters(links=3, ranges=4),
}


async def look_up(dut, parameters: LinkParameters) -> None:
    """Every first send and count, zero and too many among them, with ports at random."""
    for _ in range(3):
        port_of = [random.randrange(parameters.links) for _ in range(parameters.sends)]
        for number, port in enumerate(port_of):
            getattr(dut, f"port_of__{number}").value = port
        for first in range(parameters.sends):
            for count in range(1 << sends_layout(parameters)["count"].width):
                dut.sends.value = pack(sends_layout(parameters), first=first, count=count)
                await Timer(1, unit="ns")
                routes = unpack(routes_layout(parameters), int(dut.routes.value))
                assert routes == packet_routes(first, count, port_of), (first, count, port_of)


@cocotb.test()
async def two_ports(dut):
    await look_up(dut, SIZES["two_ports"])


@cocotb.test()
async def seven_ports(dut):
    await look_up(dut, SIZES["seven_ports"])


@cocotb.test()
async def three_ports(dut):
    await look_up(dut, SIZES["three_ports"])


@pytest.mark.parametrize("size", SIZES)
def test_routes(size):
    simulate(SendRoutes(SIZES[size]), f"send_routes_{size}", __name__, size)


def test_a_count_that_is_taken_as_it_is_is_caught():
    """0 stands for 1, and what is too high for all sends."""

    def as_it_is(parameters: LinkParameters, count: Value) -> Value:
        return count

    with patch("hw.link.send_routes.existing_sends", as_it_is), caught():
        simulate(SendRoutes(SIZES["two_ports"]), "send_routes_as_it_is", __name__, "two_ports")
