"""What is synthesized: every block of the path of a sector on its own, and the whole node."""

from collections.abc import Callable

from amaranth.lib import wiring

from hw.address_map import AddressMap
from hw.config import Configuration
from hw.dma.engine import DmaEngine
from hw.link.link_unit import LinkUnit
from hw.link.packetizer import StorePacketizer
from hw.memory_controller.arbiter import Arbiter
from hw.memory_controller.bank_machine import BankMachines
from hw.memory_controller.controller import MemoryController
from hw.memory_controller.dram_queue import DramQueue
from hw.near_bank.alu import Alu
from hw.near_bank.bank_group import BankGroupUnit
from hw.node import Node
from hw.register_file import RegisterFile
from hw.tracker.spill import SpillPort
from hw.tracker.tracker import Tracker

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
    "register_file": RegisterFile,
    "node": Node,
}
"""`memory_controller` holds arbiter, DRAM queue and bank machines, `near_bank` one bank group's ALU, `tracker` the
trigger table; `node` everything but `near_bank`."""

PARTS = ("arbiter", "dram_queue", "bank_machines", "alu")
"""Blocks inside of another block of the list."""
