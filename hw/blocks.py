"""The blocks of the hardware: one list, from which export, synthesis, mutation and the coverage page take theirs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from amaranth.lib import wiring

from .address_map import AddressMap
from .config import Configuration
from .dma.engine import DmaEngine
from .link.lane import LinkLane
from .link.packetizer import StorePacketizer
from .memory_clear import MemoryClear
from .memory_controller.arbiter import Arbiter
from .memory_controller.bank_machine import BankMachines
from .memory_controller.controller import MemoryController
from .memory_controller.dram_queue import DramQueue
from .near_bank.alu import Alu
from .near_bank.bank_group import BankGroupUnit
from .node import Node
from .registers.register_file import RegisterFile
from .tracker.doorbell import Doorbell
from .tracker.spill import SpillPort
from .tracker.tracker import Tracker

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Block:
    """One block. Every file of `hw` with logic or signals is in the `files` (below `hw`) of exactly one.

    `make` makes the component; None: it is made inside of others only, with parameters of theirs. `part_of` names the
    block that holds it; a part is not placed on an FPGA by itself. `exported`: also written as a module `t3_<name>`,
    for who wants it in another design. `synthesized`: area and timing are measured. `apart`: a pattern of the paths of
    instances in it whose gates are mapped each by itself, as in a flow that builds a chip from blocks; measured is the
    netlist of all together. `copies`: a pattern of the names of instances in it that are as one, but for
    constants such as their number: where there are several, the first one's gates stand for all.
    """

    name: str
    files: tuple[str, ...]
    make: Callable[[Configuration], wiring.Component] | None = None
    part_of: str = ""
    exported: bool = False
    synthesized: bool = True
    apart: str = ""
    copies: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """`files` as seen from the root of the repository."""
        return tuple(f"{FOLDER.name}/{file}" for file in self.files)


def _in(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}.py" for name in names)


BLOCKS = {
    block.name: block
    for block in (
        Block(
            "address_map",
            ("address_map.py", "range_table.py", "send_table.py", "word_table.py"),
            AddressMap,
            exported=True,
        ),
        Block("arbiter", _in("memory_controller", "arbiter"), lambda config: Arbiter(), "memory_controller"),
        Block("intensity", _in("memory_controller", "intensity"), part_of="memory_controller", synthesized=False),
        Block(
            "dram_queue",
            ("memory_controller/dram_queue.py", "primitives/lowest_bit.py"),
            DramQueue,
            "memory_controller",
        ),
        Block(
            "bank_machines",
            ("memory_controller/bank_machine.py", "primitives/lane_timers.py"),
            BankMachines,
            "memory_controller",
        ),
        Block(
            "memory_watch",
            _in("primitives", "memory_watch", "partial_parities"),
            part_of="memory_controller",
            synthesized=False,
        ),
        Block(
            "memory_controller",
            (
                *_in("memory_controller", "admission", "controller", "events", "payload_store"),
                *_in("memory_controller", "read_return", "refresh"),
                *_in("primitives", "count_ones", "places", "queue"),
                "next_word_upset.py",
            ),
            MemoryController,
            exported=True,
        ),
        Block("alu", _in("near_bank", "alu", "float_add"), lambda config: Alu(), "near_bank"),
        Block("near_bank", _in("near_bank", "bank_group"), BankGroupUnit, exported=True),
        Block("coalescer", _in("tracker", "coalescer", "merging"), part_of="tracker", synthesized=False),
        Block("secded", _in("primitives", "secded"), part_of="tracker", synthesized=False),
        Block(
            "trigger_table",
            _in("tracker", "protected_queue", "ready_queue", "trigger_table"),
            part_of="tracker",
            synthesized=False,
        ),
        Block(
            "tracker",
            _in(
                "tracker",
                "bank",
                "count_stage",
                "direct_select",
                "mender",
                "mshr",
                "pipeline",
                "spilled_records",
                "storage",
                "tile_geometry",
                "tracker",
                "way_select",
            ),
            Tracker,
            exported=True,
        ),
        Block("doorbell", _in("tracker", "doorbell"), Doorbell, exported=True),
        Block("spill_port", _in("tracker", "crossbar", "spill"), SpillPort, exported=True),
        Block("dma_engine", _in("dma", "engine", "lane_walker", "packet_reader", "walker"), DmaEngine, exported=True),
        Block("store_packetizer", _in("link", "packetizer"), StorePacketizer, exported=True),
        Block(
            "link_lane",
            _in(
                "link",
                "egress",
                "flit_buffer",
                "flit_crc",
                "issue",
                "lane",
                "packet_writer",
                "port_ingress",
                "port_queue",
                "port_receiver",
                "port_sender",
                "send_routes",
                "send_table",
                "slot_bank",
                "slot_source",
                "turns",
            ),
            LinkLane,
            exported=True,
        ),
        Block(
            "register_file",
            _in("registers", "map", "protected_words", "register_file", "tables"),
            RegisterFile,
            exported=True,
        ),
        Block("memory_clear", ("memory_clear.py",), MemoryClear, part_of="node"),
        Block(
            "stream_arbiter",
            _in("primitives", "round_robin", "stream_arbiter", "stream_fork"),
            part_of="node",
            synthesized=False,
        ),
        Block(
            "node",
            (
                "abort.py",
                "drain_bound.py",
                "interfaces.py",
                "memory_errors.py",
                "memory_lane.py",
                "memory_window.py",
                "messages.py",
                "node.py",
                "node_monitor.py",
                "primitives/clock_enable.py",
                "protection.py",
            ),
            Node,
            exported=True,
            apart=r"lane_\d+__controller_\d+|tracker|registers|memory_clear|doorbell",
            copies=r"lane_\d+",
        ),
    )
}
"""Along the path of a sector, the parts of a block before it; the node, which holds all but `near_bank`, last."""


def paths_of(*names: str) -> tuple[str, ...]:
    """Files of the blocks `names`, as seen from the root of the repository; :class:`KeyError` when one is unknown."""
    return tuple(path for name in names for path in BLOCKS[name].paths)
