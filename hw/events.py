"""What each block tells the counters every cycle: layouts of the events that `hw/registers` adds up."""

from amaranth.hdl import unsigned
from amaranth.lib import data

from .messages import Access, Phase, Threshold

ControllerEvents = data.StructLayout(
    {
        "column": unsigned(1),
        "phase": Phase,
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
"""What a channel's controller did this cycle, for the counters. `column`: a column command of (`phase`, `access`) was
issued, `row_hit` when it needed no ACT of its own; `held_*`: the stream had a request the arbiter did not take;
`passed_over`: communication could have been taken and was not; `took_communication`: it was; `forced`: the starvation
limit let it through; `occupancy`: requests in the DRAM queue; `threshold`: the
limit in force; `unsettled`: a write that belongs to an epoch has no column command yet, or a commit was not taken;
`idle`: nothing queued or in flight."""

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
made, counters evicted to and fetched from their home, WF tiles completed, banks that made a message wait; `live`:
entries in use."""

DmaEvents = data.StructLayout(
    {"busy": unsigned(1), "reads": unsigned(6), "packets": unsigned(1), "blocks": unsigned(1), "waiting": unsigned(1)}
)
"""What the DMA engine did this cycle: a block is in work; sectors whose read was issued; packets and blocks whose last
flit left; `waiting`: no packet buffer was free."""

LinkEvents = data.StructLayout(
    {
        "sent_flits": unsigned(1),
        "sent_packets": unsigned(1),
        "received_packets": unsigned(1),
        "no_credit": unsigned(1),
        "no_grant": unsigned(1),
        "discarded_packets": unsigned(2),
        "writing": unsigned(1),
        "all_sent": unsigned(1),
        "idle": unsigned(1),
    }
)
"""What one link port did this cycle. `no_credit`, `no_grant`: a packet waited for that; `discarded_packets`: packets of
an epoch that is not armed, thrown away instead of sent; `writing`: an accepted packet has writes that wait to enter a
queue; `all_sent`: no packet is queued or being sent; `idle`: nor is one buffered on the receive side, and no write of
one waits to enter a queue."""
