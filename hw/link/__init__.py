"""Between the node and its links: packets of remote stores, ports with credits and grants, writes of what arrives."""

from .link_unit import LinkUnit
from .packet_buffer import PacketBuffer
from .packetizer import StorePacketizer
from .parameters import LinkParameters, PacketizerParameters
from .receiver import Receiver
from .transmitter import Transmitter

__all__ = [
    "LinkParameters",
    "LinkUnit",
    "PacketBuffer",
    "PacketizerParameters",
    "Receiver",
    "StorePacketizer",
    "Transmitter",
]
