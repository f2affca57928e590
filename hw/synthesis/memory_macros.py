"""The model of memory macros: how long an access takes, in fanout-of-4 delays.

A memory of B bits delivers its data 6 + 1.2 log2(B / 1024) FO4 after the clock edge that takes the address (or after
the address itself when its read is asynchronous, a register file). The slope is Amrutur and Horowitz's: the delay of an
optimal RAM grows by 1.2 FO4 per doubling ("Speed and power scaling of SRAM's", JSSC 2000); the constant puts 64 Kbit at
13.2 FO4. Inputs are to be there 2 FO4 before the edge. Each input loads its net as four smallest inverters do, each
output drives like a flip-flop's.
"""

from dataclasses import dataclass
from math import log2
from typing import Any

ACCESS_BASE = 6.0
ACCESS_PER_DOUBLING = 1.2
SETUP = 2.0
INPUT_LOADS = 4
"""Input capacitance in smallest inverters."""


def access_time(bits: int) -> float:
    """FO4 from the clock edge (or the address) to the data of a memory of `bits` bits."""
    return max(ACCESS_BASE + ACCESS_PER_DOUBLING * log2(bits / 1024), 1.0)


@dataclass(frozen=True)
class ReadPort:
    """One read port of a macro: nets of `address` (with its enable), nets of `data`."""

    address: list[int | str]
    data: list[int | str]
    synchronous: bool


@dataclass(frozen=True)
class Macro:
    """A memory left in a netlist: its size, its read ports, and the nets it samples at the clock edge."""

    name: str
    words: int
    width: int
    reads: list[ReadPort]
    sampled: list[int | str]

    @property
    def bits(self) -> int:
        """Bits stored."""
        return self.words * self.width


def _number(value: Any) -> int:
    return int(value, 2) if isinstance(value, str) else int(value)


def macro(name: str, cell: dict[str, Any]) -> Macro:
    """The macro that a `$mem_v2` cell of yosys's JSON netlist describes."""
    parameters, nets = cell["parameters"], cell["connections"]
    width, address_bits = _number(parameters["WIDTH"]), _number(parameters["ABITS"])
    clocked = _number(parameters["RD_CLK_ENABLE"])
    reads = []
    # yosys has a write enable per bit; bits that share one share a pin of the macro.
    sampled: list[int | str] = [*nets["WR_ADDR"], *nets["WR_DATA"], *dict.fromkeys(nets["WR_EN"])]
    for port in range(_number(parameters["RD_PORTS"])):
        address = nets["RD_ADDR"][port * address_bits : (port + 1) * address_bits]
        data = nets["RD_DATA"][port * width : (port + 1) * width]
        synchronous = bool(clocked >> port & 1)
        if synchronous:
            sampled += [*address, nets["RD_EN"][port]]
        reads.append(ReadPort(address, data, synchronous))
    return Macro(name, _number(parameters["SIZE"]), width, reads, sampled)
