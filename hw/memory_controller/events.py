"""What a channel's controller tells the counters, and what is counted of it."""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Value, unsigned
from amaranth.lib import data

from ..counters import Counter, Counting, peak, total
from ..messages import Access, Threshold, TrafficClass

ControllerEvents = data.StructLayout(
    {
        "column": unsigned(1),
        "traffic_class": TrafficClass,
        "access": Access,
        "activate": unsigned(1),
        "refresh": unsigned(1),
        "row_hit": unsigned(1),
        "held_compute": unsigned(1),
        "held_communication": unsigned(1),
        "passed_over": unsigned(1),
        "took_communication": unsigned(1),
        "forced": unsigned(1),
        "occupancy": unsigned(7),
        "threshold": Threshold,
        "unsettled": unsigned(1),
        "idle": unsigned(1),
    }
)
"""What a channel's controller did this cycle, for the counters. `column`: a column command of (`traffic_class`, `access`) was
issued, `row_hit` when it needed no ACT of its own; `held_*`: the stream had a request the arbiter did not take;
`passed_over`: communication could have been taken and was not; `took_communication`: it was; `forced`: the starvation
limit let it through; `occupancy`: requests in the DRAM queue; `threshold`: the
limit in force; `unsettled`: a write that belongs to an epoch has no column command yet, or a commit was not taken;
`idle`: nothing queued or in flight."""


def _sectors(traffic_class: TrafficClass, access: Access) -> Callable[[Any], Value]:
    return lambda event: event.column & (event.traffic_class == traffic_class) & (event.access == access)


CONTROLLER_COUNTERS = (
    *(
        total(
            f"sectors_{traffic_class.name.lower()}_{access.name.lower()}",
            f"DRAM sectors of traffic class {traffic_class.name}, access {access.name}",
            _sectors(traffic_class, access),
        )
        for traffic_class in TrafficClass
        for access in Access
    ),
    total("activates", "row activations", lambda event: event.activate),
    total("refreshes", "refresh commands", lambda event: event.refresh),
    total("row_hits", "column commands that needed no activation of their own", lambda event: event.row_hit),
    total("held_compute", "cycles a compute request was not taken by the arbiter", lambda event: event.held_compute),
    total(
        "held_communication",
        "cycles a communication request was not taken by the arbiter",
        lambda event: event.held_communication,
    ),
    total(
        "forced_communication",
        "communication requests let through by the starvation limit",
        lambda event: event.forced,
    ),
    Counter(
        "occupancy_sum",
        16,
        Counting.SUM,
        "requests in the DRAM queues, added up over cycles",
        lambda event: event.occupancy,
    ),
    peak("occupancy_peak", "most requests in the DRAM queues at once", lambda event: event.occupancy),
)
"""Of :data:`ControllerEvents`, over all channels."""
