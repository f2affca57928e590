"""Between the node and its links: packets of remote stores, the lane of ports that send and receive, their wire."""

from .lane import LinkLane
from .packetizer import StorePacketizer
from .parameters import LinkParameters, PacketizerParameters

__all__ = ["LinkLane", "LinkParameters", "PacketizerParameters", "StorePacketizer"]
