"""What a link port tells the counters, and what is counted of it."""

from amaranth.hdl import unsigned
from amaranth.lib import data

from ..counters import Counter, total

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

LINK_COUNTERS = (
    total(
        "discarded_packets",
        "packets of an epoch that was ended, thrown away instead of sent",
        lambda event: event.discarded_packets,
    ),
)
"""Of :data:`LinkEvents`, over all link ports."""


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
