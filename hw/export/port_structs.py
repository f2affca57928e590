"""SystemVerilog types of the ports: each struct that an exported module shows as a flat vector, as a packed struct.

Amaranth lays the first field in the lowest bits, SystemVerilog the last one: the members are written in reverse.
Structs are called `<name>_t` and enums `<name>_e`, as lowRISC's coding style has it, since some of each share a name.
"""

from functools import cached_property
from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import data, enum

from .. import messages
from ..config import Configuration
from ..dma.events import DmaEvents
from ..link import wire
from ..link.events import LinkEvents
from ..link.packet_writer import PeerCheck
from ..link.port_sender import LinkTimers
from ..memory_controller.events import ControllerEvents
from ..memory_window import WindowCheck
from ..messages import ArbiterControl, Messages
from ..near_bank.bank_group import ArrayRead, array_data_layout, array_write_layout
from ..protection import MemoryReport, MemoryUpset
from ..range_table import RangeWrite, range_write
from ..send_table import send_write
from ..tracker.events import TrackerEvents

PACKAGE = "t3_pkg"


def enumerations() -> dict[str, type[enum.Enum]]:
    """The enums that fields of payloads have, by their names in :mod:`hw.messages`."""
    return {
        name: item
        for name, item in vars(messages).items()
        if isinstance(item, type) and issubclass(item, enum.Enum) and item.__module__ == messages.__name__
    }


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class PortStructs:
    """The packed structs of all ports of an export of `config`, by the names that they have in the package."""

    def __init__(self, config: Configuration):
        payloads = Messages(config)
        properties = [name for name, item in vars(Messages).items() if isinstance(item, cached_property)]
        layouts = {name: getattr(payloads, name) for name in properties}
        layouts |= {
            "backing_store_request": data.StructLayout({"valid": 1, "request": payloads.spill_request}),
            "range_write": range_write(config),
            "send_write": send_write(config),
            "arbiter_control": ArbiterControl,
            "array_read": ArrayRead,
            "array_data": array_data_layout(config),
            "array_write": array_write_layout(config),
            "controller_events": ControllerEvents,
            "tracker_events": TrackerEvents,
            "dma_events": DmaEvents,
            "link_events": LinkEvents,
            "link_timers": LinkTimers,
            "peer_check": PeerCheck,
            "window_check": WindowCheck,
            "link_packet": wire.packet_layout(config),
            "link_packet_routes": wire.routes_layout(config),
            "link_flit": wire.flit_layout(config),
            "link_state": wire.state_layout(config),
            "link_message": wire.message_layout(config),
            "sector_arrival": wire.arrival_layout(config),
        }
        if config.protects_memories:
            layouts |= {"memory_report": MemoryReport, "memory_upset": MemoryUpset, "range_word": RangeWrite}
        self._config = config
        self.layouts = {f"{name}_t": item for name, item in layouts.items() if isinstance(item, data.StructLayout)}
        self._enums = {item: f"{_snake(name)}_e" for name, item in enumerations().items()}

    def name_of(self, shape: Any) -> str | None:
        """The type of a port or a field of `shape`; None when it is a plain number. :class:`ValueError` for a struct
        that has no name in the package."""
        if isinstance(shape, data.Layout):
            for name, layout in self.layouts.items():
                if layout == shape:
                    return name
            raise ValueError(f"no type of {PACKAGE} has the layout {shape!r}")
        return self._enums.get(shape) if isinstance(shape, type) else None

    def text(self) -> str:
        """The package, each type behind those that it is made of."""
        lines = [
            f"// Types of the ports of the modules ({self._config.name}); made from hw/messages.py, do not edit.",
            f"package {PACKAGE};",
            "",
        ]
        for item, name in self._enums.items():
            width = Shape.cast(item).width
            prefix = name.removesuffix("_e").upper()
            members = [f"    {prefix}_{member.name} = {width}'d{member.value}" for member in item]
            lines += [f"  typedef enum logic [{width - 1}:0] {{", ",\n".join(members), f"  }} {name};", ""]
        written: set[str] = set()
        for name in self.layouts:
            self._struct(name, lines, written)
        return "\n".join([*lines, f"endpackage : {PACKAGE}"]) + "\n"

    def _struct(self, name: str, lines: list[str], written: set[str]) -> None:
        if name in written:
            return
        written.add(name)
        members = []
        for field, place in self.layouts[name]:
            if not place.width:
                continue
            kind = self.name_of(place.shape)
            if kind in self.layouts:
                self._struct(kind, lines, written)
            plain = "logic" if place.width == 1 else f"logic [{place.width - 1}:0]"
            members.append(f"    {kind or plain} {field};")
        lines += ["  typedef struct packed {", *reversed(members), f"  }} {name};", ""]
