"""Sizes of what stands between the node and its links."""

from dataclasses import dataclass

from ..messages import ChannelParameters
from ..parameters import between, one_of

MAX_LINKS = 2


@dataclass(frozen=True)
class LinkParameters(ChannelParameters):
    """Of the link unit: `links` ports, `link_receive_packets` buffers at the receiver of each."""

    links: int = one_of(2, *range(1, MAX_LINKS + 1))
    link_receive_packets: int = one_of(32, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class PacketizerParameters(ChannelParameters):
    """Of the store packetizer: stores that wait per channel, packets being assembled or sent."""

    remote_queue_depth: int = between(16, 1, 1024)
    store_packets: int = one_of(2, 1, 2, 4, 8, 16, 32)
