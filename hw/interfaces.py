"""Buses between blocks and to the outside, as signatures; joined with `connect`, as streams are.

Streams of one payload (requests, commits, packets, faults) are `stream.Signature` of a layout in :mod:`hw.messages`,
the programming of the range table is a :data:`hw.range_table.RangeWrite`. Here is what has several members. A memory
port is none: requests of several blocks become one stream, and what is read is shown to all of them, for one to take.
"""

from types import SimpleNamespace
from typing import Any

from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .link.parameters import LinkParameters
from .link.wire import flit_layout, message_layout
from .message_parameters import MessageParameters
from .messages import Messages


class DramBus(wiring.Signature):
    """One channel's DRAM bus, seen from the controller: JEDEC commands plus UPDATE (op-and-store).

    `row`, `column`: a command each a cycle; `write_data`: WL cycles after its column command; `read_data`: CL cycles
    after.
    """

    def __init__(self, parameters: MessageParameters):
        messages = Messages(parameters)
        super().__init__(
            {
                "row": Out(messages.row_command),
                "column": Out(messages.column_command),
                "write_data": Out(messages.write_data),
                "read_data": In(messages.read_data),
            }
        )


class LinkPort(wiring.Signature):
    """One full-duplex link port, seen from the node: flits out and in, and the state messages against them."""

    def __init__(self, parameters: LinkParameters):
        flits = stream.Signature(flit_layout(parameters))
        super().__init__(
            {
                "tx": Out(flits),
                "tx_messages": In(message_layout(parameters)),
                "rx": In(flits),
                "rx_messages": Out(message_layout(parameters)),
            }
        )


class BackingStorePort(wiring.Signature):
    """The backing store of the Tracker's counters, seen from it: a request, always taken, and answers to fetches in any
    order, at most one a cycle."""

    def __init__(self, parameters: MessageParameters):
        messages = Messages(parameters)
        super().__init__(
            {
                "request": Out(data.StructLayout({"valid": unsigned(1), "request": messages.spill_request})),
                "response": In(messages.spill_response),
            }
        )


class AxiLite(wiring.Signature):
    """An AXI4-Lite slave with 32-bit data (ARM IHI 0022), seen from the slave; signals carry the names that
    cocotbext-axi and most tools look for behind a prefix. `address_bits`: width of a byte address."""

    def __init__(self, address_bits: int):
        super().__init__(
            {
                "awaddr": In(address_bits),
                "awprot": In(3),
                "awvalid": In(1),
                "awready": Out(1),
                "wdata": In(32),
                "wstrb": In(4),
                "wvalid": In(1),
                "wready": Out(1),
                "bresp": Out(2),
                "bvalid": Out(1),
                "bready": In(1),
                "araddr": In(address_bits),
                "arprot": In(3),
                "arvalid": In(1),
                "arready": Out(1),
                "rdata": Out(32),
                "rresp": Out(2),
                "rvalid": Out(1),
                "rready": In(1),
            }
        )


def gathered(signature: wiring.Signature, **members: Any) -> SimpleNamespace:
    """An interface of `signature` for `connect`, made of ports that a component has one by one.

    `connect` finds a member that is missing or has another shape.
    """
    return SimpleNamespace(signature=signature, **members)


def gathered_ports(signature: wiring.Signature, component: Any, prefix: str = "") -> SimpleNamespace:
    """The same of the ports of `component` that are called `<prefix><member>`."""
    return gathered(signature, **{name: getattr(component, f"{prefix}{name}") for name in signature.members})
