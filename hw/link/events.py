"""What the ports of a lane tell the counters and the node, and what is counted of it."""

from amaranth.hdl import unsigned
from amaranth.lib import data

from ..counters import Counter, total

LinkEvents = data.StructLayout(
    dict.fromkeys(
        (
            "sent_flits",
            "sent_packets",
            "left",
            "received_packets",
            "no_credit",
            "no_grant",
            "again",
            "damaged",
            "cut",
            "dead",
            "up",
            "writing",
        ),
        unsigned(1),
    )
)
"""What one link port did this cycle. `sent_flits`, `sent_packets`: taken by the wire, for the first time or not;
`left`: a packet was sent to its end for the first time;
`received_packets`: accepted; `no_credit`, `no_grant`: a packet waited for that; `again`: went back to what was not
acknowledged; `damaged`: a flit or a state message that was not clean; `cut`: a session ended; `dead`: the peer answers
nothing; `up`: in a session; `writing`: an accepted packet has writes that wait to enter a queue."""

LINK_COUNTERS = (
    total(
        "discarded_packets",
        "packets of an epoch that was ended, thrown away instead of sent",
        lambda discarded: discarded,
    ),
)
"""Of `discarded` of a lane."""


def link_counters(port: int) -> tuple[Counter, ...]:
    """Of the :data:`LinkEvents` of link port `port`."""
    name, place = f"link{port}_", f"on link port {port}"
    return (
        total(f"{name}sent_flits", f"flits sent {place}", lambda event: event.sent_flits),
        total(f"{name}sent_packets", f"packets sent {place}", lambda event: event.sent_packets),
        total(f"{name}received_packets", f"packets received {place}", lambda event: event.received_packets),
        total(f"{name}no_credit", f"cycles a packet waited for a credit {place}", lambda event: event.no_credit),
        total(f"{name}no_grant", f"cycles a packet waited for the peer's grant {place}", lambda event: event.no_grant),
    )


def recovery_counters(port: int) -> tuple[Counter, ...]:
    """Of the same, what went wrong on the wire."""
    name, place = f"link{port}_", f"on link port {port}"
    return (
        total(f"{name}damaged", f"flits and state messages with a wrong CRC {place}", lambda event: event.damaged),
        total(f"{name}replays", f"times that packets were sent again {place}", lambda event: event.again),
        total(f"{name}sessions_cut", f"sessions that ended {place}", lambda event: event.cut),
    )
