"""Parameters of a whole node and of the ring it stands in: a frozen configuration and its named presets.

A :class:`Configuration` joins the parameter classes of all blocks (see :mod:`hw.parameters`), so it is an object of
each of them. Blocks know only their own class; this file alone knows them all.

Sources: T3 (ASPLOS 2024) Table 1 and section 4.2.1.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

from .address_map import AddressMapParameters
from .dma import DmaParameters
from .dram_timing import Timing
from .geometry import (
    BANK_GROUPS,
    BANKS,
    BANKS_PER_GROUP,
    COLUMN_BITS,
    INTERLEAVE_SECTORS,
    ROW_BITS,
    SECTOR_BITS,
    SECTOR_BYTES,
    TOTAL_CHANNELS,
)
from .link import LinkParameters, PacketizerParameters
from .memory_controller import ControllerParameters
from .near_bank import NearBankParameters
from .parameters import ConfigurationError, between
from .registers import RegisterParameters
from .tracker import SpillParameters

__all__ = [
    "BANKS",
    "BANKS_PER_GROUP",
    "BANK_GROUPS",
    "COLUMN_BITS",
    "INTERLEAVE_SECTORS",
    "PRESETS",
    "ROW_BITS",
    "SECTOR_BITS",
    "SECTOR_BYTES",
    "TOTAL_CHANNELS",
    "Configuration",
    "ConfigurationError",
    "Timing",
    "preset",
]


@dataclass(frozen=True)
class Configuration(
    AddressMapParameters,
    ControllerParameters,
    NearBankParameters,
    SpillParameters,
    DmaParameters,
    PacketizerParameters,
    RegisterParameters,
    LinkParameters,
):
    """All parameters of a node and of the ring it stands in.

    Depths are in entries; each may be 1: nothing deadlocks. Widths are in bits. `link_bandwidth` is GB/s per direction
    of the whole GPU; a slice gets `channels / 32` of it, and each of its lanes the same part. `link_latency` is in
    cycles; `link_header_bytes` are what a packet takes on the link besides its sectors.
    """

    link_bandwidth: float = 75.0
    link_latency: int = between(500, 1, 65535)
    link_header_bytes: int = between(0, 0, 256)

    def check(self) -> None:
        """Raises :class:`ConfigurationError` when the link is faster than a flit a cycle."""
        super().check()
        if not isinstance(self.link_bandwidth, (int, float)) or not self.link_bandwidth > 0:
            raise ConfigurationError(f"link_bandwidth must be a positive number of GB/s, got {self.link_bandwidth!r}")
        if self.lane_bytes_per_cycle > SECTOR_BYTES:
            lanes = f" in {self.lanes} lanes" if self.lanes > 1 else ""
            raise ConfigurationError(
                f"link_bandwidth must be at most {SECTOR_BYTES * TOTAL_CHANNELS / self.lane_channels:g} GB/s with "
                f"{self.channels} channels{lanes} (a lane of a link moves one {SECTOR_BYTES} B flit a cycle), "
                f"got {self.link_bandwidth:g}"
            )

    @property
    def link_bytes_per_cycle(self) -> float:
        """Bytes a cycle that this slice's link moves per direction (1 GHz)."""
        return self.link_bandwidth * self.channels / TOTAL_CHANNELS

    @property
    def lane_bytes_per_cycle(self) -> float:
        """Bytes a cycle that one lane of that link moves."""
        return self.link_bytes_per_cycle / self.lanes


PRESETS: dict[str, Configuration] = {
    "paper": Configuration(name="paper"),
    "quad": Configuration(name="quad", channels=4, store_packets=80, link_receive_packets=128),
    "gpu": Configuration(
        name="gpu",
        channels=32,
        lanes=8,
        store_packets=80,
        link_receive_packets=128,
        tracker_banks=8,
        commit_merge_depth=4,
    ),
    "wide": Configuration(name="wide", gpus=16, ranges=32, trigger_blocks=16384),
    "tiny": Configuration(
        name="tiny",
        compute_queue_depth=1,
        communication_queue_depth=1,
        dram_queue_depth=1,
        response_depth=1,
        commit_queue_depth=1,
        spill_queue_depth=1,
        remote_queue_depth=1,
        dma_packets=1,
        dma_blocks=1,
        store_packets=1,
        link_receive_packets=1,
        tracker_mshrs=1,
    ),
}
"""Named configurations: `paper` is one channel slice of the paper's GPU, `quad` four channels, `gpu` all 32 of
them in lanes of four, `wide` for up to 32 GPUs, `tiny` has every buffer at one entry (the deadlock test)."""


def preset(name: str, **changes: Any) -> Configuration:
    """The preset called `name` with some fields changed.

    Raises :class:`ConfigurationError` when the preset or a field does not exist or a value is not allowed.
    """
    if name not in PRESETS:
        raise ConfigurationError(f"unknown preset {name!r}; allowed: {', '.join(PRESETS)}")
    known = {item.name for item in fields(Configuration)}
    for key in changes:
        if key not in known:
            raise ConfigurationError(f"unknown configuration field {key!r}; allowed: {', '.join(sorted(known))}")
    return replace(PRESETS[name], **changes)
