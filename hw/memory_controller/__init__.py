"""One channel's memory controller: two streams of requests, arbitrated, become DRAM commands (T3 section 4.5)."""

from .arbiter import Arbiter
from .bank_machine import BankMachines
from .controller import MemoryController
from .dram_queue import DramQueue
from .parameters import ControllerParameters

__all__ = ["Arbiter", "BankMachines", "ControllerParameters", "DramQueue", "MemoryController"]
