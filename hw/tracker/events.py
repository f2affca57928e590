"""What the Tracker tells the counters, and what is counted of it."""

from amaranth.hdl import unsigned
from amaranth.lib import data

from ..counters import peak, total

TrackerEvents = data.StructLayout(
    {
        "accesses": unsigned(4),
        "hits": unsigned(4),
        "allocations": unsigned(4),
        "evictions": unsigned(4),
        "fetches": unsigned(4),
        "triggers": unsigned(4),
        "stalls": unsigned(4),
        "live": unsigned(16),
    }
)
"""What the Tracker's banks did this cycle, added up: messages accepted, those that found their entry, entries newly
made, counters evicted to and fetched from the backing store, WF tiles completed, banks that made a message wait;
`live`: entries in use."""

TRACKER_COUNTERS = (
    total("tracker_accesses", "messages the Tracker accepted", lambda event: event.accesses),
    total("tracker_hits", "messages that found their entry", lambda event: event.hits),
    total("tracker_allocations", "entries newly made", lambda event: event.allocations),
    total("tracker_evictions", "counters moved to the backing store", lambda event: event.evictions),
    total("tracker_fetches", "counters fetched from the backing store", lambda event: event.fetches),
    total("tracker_triggers", "WF tiles completed", lambda event: event.triggers),
    total("tracker_stalls", "cycles a message had to wait", lambda event: event.stalls),
    peak("tracker_live_peak", "most entries in use at once", lambda event: event.live),
)
"""Of :data:`TrackerEvents`."""
