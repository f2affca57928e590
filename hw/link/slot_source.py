"""What fills the slots of a lane's egress, and how: the DMA engine and the merged stores are sources of packets."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .parameters import LinkParameters
from .wire import packet_layout, routes_layout


class PacketSource(wiring.Signature):
    """Between a source of packets and the slots, seen from the source.

    `packet`: attributes of the packet it fills, at the latest with `close`; `upcoming`: the routes of the packet it
    will fill in the next cycle. `bank`: where its sectors arrive. `room`, `slot`: it may fill that slot (or begin to
    read for it); both stay until it closes the packet. `close`: takes the slot; all of the packet's sectors are asked
    for (DMA engine), or have arrived, the last of them in this cycle at the latest (stores).
    """

    def __init__(self, parameters: LinkParameters):
        super().__init__(
            {
                "packet": Out(packet_layout(parameters)),
                "upcoming": Out(routes_layout(parameters)),
                "bank": Out(range(parameters.slot_banks)),
                "close": Out(1),
                "room": In(1),
                "slot": In(parameters.slot_bits),
            }
        )
