"""One channel's memory controller: two streams of requests, arbitrated, become DRAM commands (T3 section 4.5)."""

from .admission import Admission
from .arbiter import Arbiter
from .bank_machine import BankMachines
from .controller import MemoryController
from .dram_queue import DramQueue
from .parameters import ControllerParameters
from .payload_store import PayloadStore
from .read_return import ReadReturn

__all__ = [
    "Admission",
    "Arbiter",
    "BankMachines",
    "ControllerParameters",
    "DramQueue",
    "MemoryController",
    "PayloadStore",
    "ReadReturn",
]
