"""What is synthesized: every block of the path of a sector on its own, and the whole node."""

from collections.abc import Callable

from amaranth.lib import wiring

from ..address_map import AddressMap
from ..config import Configuration
from ..dma.engine import DmaEngine
from ..link.lane import LinkLane
from ..link.link_unit import LinkUnit
from ..link.packetizer import StorePacketizer
from ..link.wire import LinkParameters
from ..memory_controller.arbiter import Arbiter
from ..memory_controller.bank_machine import BankMachines
from ..memory_controller.controller import MemoryController
from ..memory_controller.dram_queue import DramQueue
from ..near_bank.alu import Alu
from ..near_bank.bank_group import BankGroupUnit
from ..node import Node
from ..registers.register_file import RegisterFile
from ..tracker.spill import SpillPort
from ..tracker.tracker import Tracker

BLOCKS: dict[str, Callable[[Configuration], wiring.Component]] = {
    "address_map": AddressMap,
    "arbiter": lambda config: Arbiter(),
    "dram_queue": DramQueue,
    "bank_machines": BankMachines,
    "memory_controller": MemoryController,
    "alu": lambda config: Alu(),
    "near_bank": BankGroupUnit,
    "tracker": Tracker,
    "spill_port": SpillPort,
    "dma_engine": DmaEngine,
    "store_packetizer": StorePacketizer,
    "link_unit": LinkUnit,
    "link_lane": lambda config: LinkLane(LinkParameters(config)),
    "register_file": RegisterFile,
    "node": Node,
}
"""`memory_controller` holds arbiter, DRAM queue and bank machines, `near_bank` one bank group's ALU, `tracker` the
trigger table; `node` everything but `near_bank`."""

PARTS = ("arbiter", "dram_queue", "bank_machines", "alu")
"""Blocks inside of another block of the list."""
