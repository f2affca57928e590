"""Sizes of what stands between the node and its links."""

from dataclasses import dataclass

from ..message_parameters import ChannelParameters
from ..parameters import ConfigurationError, between, one_of

MAX_LINKS = 15


@dataclass(frozen=True)
class LinkParameters(ChannelParameters):
    """Of the link: `links` ports, of each lane of which the rest is said; `dma_packets` packet slots of each channel
    for the DMA engine, `store_packets` for
    merged stores; `link_receive_packets` packets that each port can hold on arrival.

    A slot is in use until the packet is acknowledged, so to keep a link busy there must be as many as it sends in a
    round trip; so that a port which stands cannot hold up another, more than there are ports. `link_sequence_bits`:
    width of a sequence number; packets may come late on the wire by less than half of its range. `link_output_flits`:
    flits of a port between the slots and the wire. `link_repeat`: cycles after which an unchanged state message is sent
    again.
    """

    links: int = one_of(2, *range(1, MAX_LINKS + 1))
    store_packets: int = between(40, 1, 512)
    link_receive_packets: int = one_of(32, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    link_sequence_bits: int = between(12, 3, 16)
    link_output_flits: int = between(2, 1, 4)
    link_repeat: int = between(64, 1, 65535)

    def check(self) -> None:
        """Raises :class:`ConfigurationError` when sequence numbers are too short for the queues."""
        super().check()
        places = max(self.port_queue_depth, self.link_receive_packets)
        if 2 * places > 1 << self.link_sequence_bits:
            raise ConfigurationError(
                f"link_sequence_bits must be at least {(2 * places - 1).bit_length()}: sequence numbers count twice "
                f"the {self.port_queue_depth} places of a port's queue and the {self.link_receive_packets} packets "
                f"that it can receive; got {self.link_sequence_bits}"
            )

    @property
    def link_lanes(self) -> int:
        """Lanes of all ports; those of a port stand side by side."""
        return self.links * self.lanes

    @property
    def packet_slots(self) -> tuple[int, ...]:
        """Slots of each bank: one bank per channel, where its sectors arrive, and the last for stores."""
        return (*(self.dma_packets,) * self.lane_channels, self.store_packets)

    @property
    def slot_banks(self) -> int:
        """Memories of packet slots."""
        return len(self.packet_slots)

    def own_slots(self, bank: int) -> int:
        """Slots of `bank` that only one port may have, for each port; at least one slot is shared by all."""
        return min(2, (self.packet_slots[bank] - 1) // self.links)

    @property
    def slot_bits(self) -> int:
        """Width of a slot's number in its bank."""
        return max(1, (max(self.packet_slots) - 1).bit_length())

    @property
    def port_queue_depth(self) -> int:
        """Places of a port's queue, a power of two: as many descriptors as the slots can have for one port."""
        places = sum(
            self.own_slots(bank) + max(slots - self.links * self.own_slots(bank), self.sends)
            for bank, slots in enumerate(self.packet_slots)
        )
        return 1 << (places - 1).bit_length()


@dataclass(frozen=True)
class PacketizerParameters(LinkParameters):
    """Of the store packetizer: `remote_queue_depth` stores that wait per channel."""

    remote_queue_depth: int = between(16, 1, 1024)
