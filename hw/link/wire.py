"""What travels between two link ports, and the parameters that all blocks of the link share.

Forward: flits. A packet is a HEADER flit and 1 to 8 DATA flits; OPEN begins a session. Every flit says by itself where
it belongs and is checked by itself (:mod:`hw.link.flit_crc`), so that no damage to one can put sectors into another
packet. Backward: state messages, sent when the state changes and repeated while it does not: losing one costs time
only.
"""

from dataclasses import dataclass, field

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from ..config import Configuration, ConfigurationError
from ..messages import Access, AluOperation, DataType, Messages, TrafficClass
from .flit_crc import CHECK_BITS

SESSION_BITS = 8
ATTEMPT_BITS = 2
MAX_LINKS = 15
PROTECTIONS = ("none", "links")


@dataclass(frozen=True)
class LaneParameters:
    """Sizes of the link of one lane; widths of addresses and the range table are those of `config`.

    `links`: ports (1 to 15). `dma_slots`: packet slots of each channel for the DMA engine, `store_slots`: for merged
    stores. `sends`: entries of the send table. `receive_packets`: packets a port can hold on arrival (a power of two).
    `sequence_bits`: width of a sequence number; packets may come late on the wire by less than half of its range.
    `output_flits`: flits of a port between the slots and the wire; two keep up with one a cycle. `repeat`: cycles after
    which an unchanged state message is sent again. `protection`: `links`, or `none` for wires that lose nothing: then
    flits have no check and a slot is free when its last send has left.
    """

    config: Configuration = field(default_factory=Configuration)
    links: int = 2
    dma_slots: int = 8
    store_slots: int = 2
    sends: int = 16
    receive_packets: int = 32
    sequence_bits: int = 12
    output_flits: int = 2
    repeat: int = 64
    protection: str = "links"

    def __post_init__(self) -> None:
        bounds = {
            "links": (1, MAX_LINKS),
            "dma_slots": (1, 128),
            "store_slots": (1, 128),
            "sends": (2, 64),
            "sequence_bits": (3, 16),
            "output_flits": (1, 4),
            "repeat": (1, 65535),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not isinstance(value, int) or not low <= value <= high:
                raise ConfigurationError(f"{name} must be from {low} to {high}; got {value!r}")
        if self.receive_packets not in [1 << n for n in range(10)]:
            raise ConfigurationError(f"receive_packets must be a power of two up to 512; got {self.receive_packets!r}")
        if self.sends & (self.sends - 1):
            raise ConfigurationError(f"sends must be a power of two; got {self.sends}")
        if self.protection not in PROTECTIONS:
            raise ConfigurationError(f"protection must be one of {', '.join(PROTECTIONS)}; got {self.protection!r}")
        if 2 * max(self.queue_depth, self.receive_packets) > 1 << self.sequence_bits:
            raise ConfigurationError(
                f"sequence_bits must count twice the {self.queue_depth} places of a port's queue and the "
                f"{self.receive_packets} packets a port can receive; got {self.sequence_bits}"
            )

    @property
    def slots(self) -> tuple[int, ...]:
        """Slots of each bank: one bank per channel, and the last for stores."""
        return (*(self.dma_slots,) * self.config.channels, self.store_slots)

    @property
    def banks(self) -> int:
        """Memories of slots: one per channel, where its sectors arrive, and one for stores."""
        return self.config.channels + 1

    def own_slots(self, bank: int) -> int:
        """Slots of `bank` that only one port may have, for each port; at least one slot is shared by all."""
        return min(2, (self.slots[bank] - 1) // self.links)

    @property
    def slot_bits(self) -> int:
        """Width of a slot's number in its bank."""
        return max(1, (max(self.slots) - 1).bit_length())

    @property
    def queue_depth(self) -> int:
        """Places of a port's queue, a power of two: as many descriptors as the slots can have for one port."""
        places = sum(
            self.own_slots(bank) + max(slots - self.links * self.own_slots(bank), self.sends)
            for bank, slots in enumerate(self.slots)
        )
        return 1 << (places - 1).bit_length()

    @property
    def protected(self) -> bool:
        """Flits are checked and sent again."""
        return self.protection != "none"


class FlitKind(enum.Enum, shape=2):
    """What a flit is."""

    DATA = 0
    HEADER = 1
    OPEN = 2


def flit_layout(parameters: LaneParameters) -> data.StructLayout:
    """A flit. `place`: sector of the packet (DATA). `sequence`: of its packet; of OPEN, that of the first packet of the
    session. `attempt`: the last request of the receiver to send again that the sender has followed. `data`: a sector,
    or the header in the low bits. `crc`: over all bits below."""
    return data.StructLayout(
        {
            "kind": FlitKind,
            "last": unsigned(1),
            "place": unsigned(3),
            "sequence": unsigned(parameters.sequence_bits),
            "session": unsigned(SESSION_BITS),
            "attempt": unsigned(ATTEMPT_BITS),
            "data": unsigned(256),
            "crc": unsigned(CHECK_BITS),
        }
    )


def state_layout(parameters: LaneParameters) -> data.StructLayout:
    """What a receiver says of itself. `session`: the one it is in, 0: none. `expected`: sequence number of the next
    packet it takes; all before are acknowledged. `freed`: number of the first packet whose buffer is not free yet.
    `granted`, `epoch`: packets of that epoch are taken. `attempt`: counts its requests to send again."""
    return data.StructLayout(
        {
            "session": unsigned(SESSION_BITS),
            "expected": unsigned(parameters.sequence_bits),
            "freed": unsigned(parameters.sequence_bits),
            "granted": unsigned(1),
            "epoch": Messages(parameters.config).epoch,
            "attempt": unsigned(ATTEMPT_BITS),
            "crc": unsigned(CHECK_BITS),
        }
    )


def message_layout(parameters: LaneParameters) -> data.StructLayout:
    """A state message on the backward wires, at most one a cycle, never stalled."""
    return data.StructLayout({"valid": unsigned(1), "state": state_layout(parameters)})


def header_layout(config: Configuration) -> data.StructLayout:
    """Data of a HEADER flit: 1 to 8 sectors at consecutive addresses (`length` = sectors - 1).

    `mask` is the byte mask of the last sector; the others are whole."""
    messages = Messages(config)
    return data.StructLayout(
        {
            "va": messages.va,
            "wg": messages.wg,
            "wf": messages.wf,
            "access": Access,
            "alu": AluOperation,
            "dtype": DataType,
            "traffic_class": TrafficClass,
            "epoch": messages.epoch,
            "length": unsigned(3),
            "mask": unsigned(32),
            "source": unsigned(6),
            "destination": unsigned(6),
        }
    )


def _send_bits(parameters: LaneParameters) -> int:
    return max(1, (parameters.sends - 1).bit_length())


def count_bits(parameters: LaneParameters) -> int:
    """Width of a number of sends, 0 to `sends`."""
    return parameters.sends.bit_length()


def packet_layout(parameters: LaneParameters) -> data.StructLayout:
    """Attributes of a packet in a slot: where its sectors go on this GPU's side; the send table says what each send
    makes of it. `first`, `count`: its sends. `mark`: comes back with the release of each of them."""
    messages = Messages(parameters.config)
    return data.StructLayout(
        {
            "va": messages.va,
            "wg": messages.wg,
            "wf": messages.wf,
            "epoch": messages.epoch,
            "length": unsigned(3),
            "mask": unsigned(32),
            "first": unsigned(_send_bits(parameters)),
            "count": unsigned(count_bits(parameters)),
            "mark": unsigned(1),
        }
    )


def descriptor_layout(parameters: LaneParameters) -> data.StructLayout:
    """One send of one slot, as it waits in the queue of its port."""
    messages = Messages(parameters.config)
    return data.StructLayout(
        {
            "bank": unsigned((parameters.banks - 1).bit_length()),
            "slot": unsigned(parameters.slot_bits),
            "send": unsigned(_send_bits(parameters)),
            "length": unsigned(3),
            "epoch": messages.epoch,
            "mark": unsigned(1),
        }
    )


def arrival_layout(parameters: LaneParameters) -> data.StructLayout:
    """One sector for place `index` of `slot` of a bank."""
    return data.StructLayout(
        {"valid": unsigned(1), "index": unsigned(3), "slot": unsigned(parameters.slot_bits), "data": unsigned(256)}
    )
