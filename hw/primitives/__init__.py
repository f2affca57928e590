"""Parts that several blocks use and that know nothing of T3."""

from .clock_enable import ClockEnable, sleeping_submodule
from .lane_timers import LaneTimers
from .places import FreeList, Room
from .queue import Queue
from .round_robin import next_in_turn
from .stream_arbiter import StreamArbiter
from .stream_fork import StreamFork

__all__ = [
    "ClockEnable",
    "FreeList",
    "LaneTimers",
    "Queue",
    "Room",
    "StreamArbiter",
    "StreamFork",
    "next_in_turn",
    "sleeping_submodule",
]
