"""Sizes of a switch between GPUs, and the times of its links."""

from dataclasses import dataclass, fields

from hw.config import Configuration
from hw.link.parameters import LinkParameters
from hw.parameters import between

MOST_PORTS = 16
"""Queues are as many as the square of the ports."""


@dataclass(frozen=True)
class SwitchParameters(LinkParameters):
    """Of one lane of a switch with `switch_ports` ports; its links are those of the GPUs, of which the rest is said.

    A packet of any input may wait for any output, so there is a bank of slots for each input, as many as a sender
    takes its peer to have. What an output has in its queue is no more than its peer has room for.
    """

    switch_ports: int = between(8, 2, MOST_PORTS)

    @property
    def packet_slots(self) -> tuple[int, ...]:
        """Slots of each bank: one bank per input."""
        return (self.link_receive_packets,) * self.switch_ports

    @property
    def port_queue_depth(self) -> int:
        """Places of an output's queue."""
        return self.link_receive_packets


def switch_parameters(config: Configuration, ports: int) -> SwitchParameters:
    """Of a switch with `ports` ports between GPUs of `config`. Raises :class:`hw.parameters.ConfigurationError` for
    more than :data:`MOST_PORTS`."""
    values = {item.name: getattr(config, item.name) for item in fields(LinkParameters)}
    return SwitchParameters(**values, switch_ports=ports)
