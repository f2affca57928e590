"""Parts that several blocks use and that know nothing of T3."""

from .lane_timers import LaneTimers
from .places import FreeList, Room
from .queue import Queue
from .stream_arbiter import StreamArbiter

__all__ = ["FreeList", "LaneTimers", "Queue", "Room", "StreamArbiter"]
