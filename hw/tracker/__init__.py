"""The Tracker with its trigger table, and the port through which its counters go to memory and back.

Commits of all channels come in; blocks that are complete go out, to a DMA engine or to whoever launches work. Source:
T3 sections 4.2.1 and 4.2.2.
"""

from .parameters import SpillParameters, TrackerParameters
from .spill import SpillPort
from .tracker import Tracker
from .trigger_table import TriggerTable

__all__ = ["SpillParameters", "SpillPort", "Tracker", "TrackerParameters", "TriggerTable"]
