"""What travels between two link ports, and the parameters that all blocks of the link share.

Forward: flits. A packet is a HEADER flit and 1 to 8 DATA flits; OPEN begins a session. Every flit says by itself where
it belongs and is checked by itself (:mod:`hw.link.flit_crc`), so that no damage to one can put sectors into another
packet. Backward: state messages, sent when the state changes and repeated while it does not: losing one costs time
only.
"""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from ..message_parameters import ChannelParameters
from ..messages import Access, AluOperation, DataType, Messages, TrafficClass
from ..range_table import Control
from .flit_crc import CRC_BITS
from .parameters import LinkParameters

SESSION_BITS = 8
ATTEMPT_BITS = 2


class FlitKind(enum.Enum, shape=2):
    """What a flit is."""

    DATA = 0
    HEADER = 1
    OPEN = 2


def flit_layout(parameters: LinkParameters) -> data.StructLayout:
    """A flit. `place`: sector of the packet (DATA). `sequence_number`: of its packet; of OPEN, that of the first packet
    of the session. `attempt`: the last request of the receiver to send again that the sender has followed. `data`: a
    sector, or the header in the low bits. `crc`: over all bits below."""
    return data.StructLayout(
        {
            "kind": FlitKind,
            "last": unsigned(1),
            "place": unsigned(3),
            "sequence_number": unsigned(parameters.link_sequence_bits),
            "session": unsigned(SESSION_BITS),
            "attempt": unsigned(ATTEMPT_BITS),
            "data": Messages(parameters).sector,
            "crc": unsigned(CRC_BITS),
        }
    )


def state_layout(parameters: LinkParameters) -> data.StructLayout:
    """What a receiver says of itself. `session`: the one it is in, 0: none. `expected`: sequence number of the next
    packet it takes; all before are acknowledged. `freed`: number of the first packet whose buffer is not free yet.
    `granted`, `epoch`: packets of that epoch are taken. `attempt`: counts its requests to send again. `notice`: its
    node has aborted that epoch, 0: none."""
    return data.StructLayout(
        {
            "session": unsigned(SESSION_BITS),
            "expected": unsigned(parameters.link_sequence_bits),
            "freed": unsigned(parameters.link_sequence_bits),
            "granted": unsigned(1),
            "epoch": Messages(parameters).epoch,
            "attempt": unsigned(ATTEMPT_BITS),
            "notice": Messages(parameters).epoch,
            "crc": unsigned(CRC_BITS),
        }
    )


def message_layout(parameters: LinkParameters) -> data.StructLayout:
    """A state message on the backward wires, at most one a cycle, never stalled."""
    return data.StructLayout({"valid": unsigned(1), "state": state_layout(parameters)})


def header_layout(config: ChannelParameters) -> data.StructLayout:
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


def count_bits(parameters: LinkParameters) -> int:
    """Width of a number of sends, 0 to `sends`."""
    return parameters.sends.bit_length()


def sends_layout(parameters: LinkParameters) -> data.StructLayout:
    """The sends of a packet, as its range has them: entries `first` to `first` + `count` - 1 of the send table, around
    its end."""
    return data.StructLayout({"first": unsigned(parameters.send_bits), "count": Control["sends"].shape})


def routes_layout(parameters: LinkParameters) -> data.StructLayout:
    """What slots are given out by: the `ports` of a packet's sends, whether each uses one of its own (`single`), and
    how many sends there are, 1 at least."""
    return data.StructLayout(
        {"ports": unsigned(parameters.links), "single": unsigned(1), "sends": unsigned(count_bits(parameters))}
    )


def packet_layout(parameters: LinkParameters) -> data.StructLayout:
    """Attributes of a packet in a slot: where its sectors go on this GPU's side; the send table says what each send
    makes of it. `first`, `count`: its sends. `mark`: the last packet of a block."""
    messages = Messages(parameters)
    return data.StructLayout(
        {
            "va": messages.va,
            "wg": messages.wg,
            "wf": messages.wf,
            "epoch": messages.epoch,
            "length": unsigned(3),
            "mask": unsigned(32),
            **{name: field.shape for name, field in sends_layout(parameters)},
            "mark": unsigned(1),
        }
    )


def descriptor_layout(parameters: LinkParameters) -> data.StructLayout:
    """One send of one slot, as it waits in the queue of its port."""
    messages = Messages(parameters)
    return data.StructLayout(
        {
            "bank": unsigned((parameters.slot_banks - 1).bit_length()),
            "slot": unsigned(parameters.slot_bits),
            "send": unsigned(parameters.send_bits),
            "length": unsigned(3),
            "epoch": messages.epoch,
            "mark": unsigned(1),
        }
    )


def arrival_layout(parameters: LinkParameters) -> data.StructLayout:
    """One sector for place `index` of `slot` of a bank."""
    return data.StructLayout(
        {
            "valid": unsigned(1),
            "index": unsigned(3),
            "slot": unsigned(parameters.slot_bits),
            "data": Messages(parameters).sector,
        }
    )
