"""Parameters of one T3 system: a frozen configuration and its named presets.

Every block takes a :class:`Configuration`; nothing is sized anywhere else. A value outside its range is refused with
a :class:`ConfigurationError` whose message names the field and what is allowed.

Sources: T3 (ASPLOS 2024) Table 1 and section 4.2.1; JESD235 (HBM2) for the names of the timing parameters.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any

SECTOR_BYTES = 32
"""Bytes the DRAM, the near-bank ALU and the Tracker count in."""
SECTOR_BITS = 5
INTERLEAVE_SECTORS = 8
"""Sectors in one channel before the address moves on to the next channel (256 B); also the longest link packet."""
BANK_GROUPS = 4
BANKS_PER_GROUP = 4
BANKS = BANK_GROUPS * BANKS_PER_GROUP
COLUMN_BITS = 6
ROW_BITS = 15
TOTAL_CHANNELS = 32
"""C: channels of the whole GPU. A configuration simulates a slice of `channels` of them."""


SWITCHED_BUGS = ("count_at_enqueue", "no_first_touch", "dropped_update", "doubled_trigger")
CHOSEN_BUG = "chosen"
SEEDED_BUGS = ("", *SWITCHED_BUGS, CHOSEN_BUG)
"""Faults a build can carry on purpose, to show that the testbench catches them (:mod:`hw.seeded_bug`); none in any
preset."""


class ConfigurationError(ValueError):
    """A field of a configuration has a value the hardware cannot be built with."""


@dataclass(frozen=True)
class Timing:
    """HBM2 timing in controller cycles, command to command (JESD235 names; 1 cycle = 1 ns at 1 GHz).

    `ccdwl` is the column-to-column delay within a bank group after an op-and-store UPDATE (paper section 4.3).
    `refresh` switches all-bank refresh on.
    """

    cl: int = 14
    wl: int = 2
    rcd_rd: int = 14
    rcd_wr: int = 11
    rp: int = 14
    ras: int = 33
    rc: int = 47
    ccd_s: int = 1
    ccd_l: int = 2
    ccdwl: int = 4
    rrd: int = 4
    faw: int = 16
    rtp: int = 4
    rtw: int = 15
    wtr: int = 6
    wtp: int = 15
    rfc: int = 350
    refi: int = 3900
    refresh: bool = True

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "refresh":
                if not isinstance(value, bool):
                    raise ConfigurationError(f"timing.refresh must be true or false, got {value!r}")
            elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
                raise ConfigurationError(f"timing.{item.name} must be a whole number from 1 to 65535, got {value!r}")
        if self.wl < 2:
            raise ConfigurationError(
                f"timing.wl must be at least 2 (the write data memory is read ahead), got {self.wl}"
            )
        if self.ccdwl < 4:
            raise ConfigurationError(
                f"timing.ccdwl must be at least 4 (the near-bank ALU has 4 stages), got {self.ccdwl}"
            )
        if self.refi <= self.rfc:
            raise ConfigurationError(f"timing.refi must be greater than timing.rfc ({self.rfc}), got {self.refi}")


def _one_of(*values: int) -> dict[str, Any]:
    return {"allowed": values}


def _between(low: int, high: int) -> dict[str, Any]:
    return {"between": (low, high)}


_POWERS = tuple(1 << n for n in range(17))
MAX_TAGGED_SETS = 1024


@dataclass(frozen=True)
class Configuration:
    """All parameters of a node and of the ring it stands in.

        Depths are in entries; each may be 1: nothing deadlocks. Widths are in bits. `link_bandwidth` is GB/s
    per direction of the whole GPU; a slice gets `channels / 32` of it. `link_latency` is in cycles. `far_homes`: the
    channels that are not in the slice keep their share of the Tracker's home table, behind a port of the node.
    `tracker_tags`: without, the Tracker is a table with a place for every {wg, wf}, of `tracker_sets` WGs and all WFs.
    `gated_clocks` gates the clocks of idle blocks (:mod:`hw.clock_gate`; for simulation). `seeded_bug` builds the
    hardware with a fault of :data:`SEEDED_BUGS`, for tests of the testbench.
    """

    name: str = "custom"
    gpus: int = field(default=4, metadata=_between(2, 64))
    channels: int = field(default=1, metadata=_one_of(1, 2, 4, 8, 16, 32))
    ranges: int = field(default=16, metadata=_one_of(4, 8, 16, 32, 64))
    links: int = field(default=2, metadata=_one_of(1, 2))

    compute_queue_depth: int = field(default=16, metadata=_between(1, 1024))
    communication_queue_depth: int = field(default=16, metadata=_between(1, 1024))
    dram_queue_depth: int = field(default=64, metadata=_one_of(1, 2, 4, 8, 16, 32, 64))
    response_depth: int = field(default=32, metadata=_between(1, 1024))
    commit_queue_depth: int = field(default=64, metadata=_between(1, 1024))
    spill_queue_depth: int = field(default=8, metadata=_between(1, 64))
    remote_queue_depth: int = field(default=16, metadata=_between(1, 1024))
    dma_packets: int = field(default=8, metadata=_one_of(1, 2, 4, 8, 16, 32, 64, 128))
    store_packets: int = field(default=2, metadata=_one_of(1, 2, 4, 8, 16, 32))
    link_receive_packets: int = field(default=32, metadata=_one_of(1, 2, 4, 8, 16, 32, 64, 128, 256, 512))

    tracker_sets: int = field(default=256, metadata=_one_of(*_POWERS[2:13]))
    tracker_ways: int = field(default=8, metadata=_one_of(1, 2, 4, 8, 16))
    tracker_banks: int = field(default=1, metadata=_one_of(1, 2, 4, 8))
    tracker_fetches: int = field(default=8, metadata=_one_of(1, 2, 4, 8, 16))
    trigger_blocks: int = field(default=4096, metadata=_one_of(*_POWERS[4:17]))

    wg_bits: int = field(default=16, metadata=_between(9, 20))
    wf_bits: int = field(default=3, metadata=_one_of(3))
    va_bits: int = field(default=48, metadata=_between(36, 57))
    count_bits: int = field(default=17, metadata=_between(8, 24))
    epoch_bits: int = field(default=8, metadata=_between(4, 8))

    link_bandwidth: float = 75.0
    link_latency: int = field(default=500, metadata=_between(1, 65535))
    link_header_bytes: int = field(default=0, metadata=_between(0, 256))

    timing: Timing = field(default_factory=Timing)
    tracker_tags: bool = True
    far_homes: bool = False
    gated_clocks: bool = False
    seeded_bug: str = ""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not item.metadata:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigurationError(f"{item.name} must be a whole number, got {value!r}")
            if "allowed" in item.metadata and value not in item.metadata["allowed"]:
                allowed = ", ".join(map(str, item.metadata["allowed"]))
                raise ConfigurationError(f"{item.name} must be one of {allowed}; got {value}")
            if "between" in item.metadata:
                low, high = item.metadata["between"]
                if not low <= value <= high:
                    raise ConfigurationError(f"{item.name} must be from {low} to {high}; got {value}")
        if not isinstance(self.timing, Timing):
            raise ConfigurationError(f"timing must be a Timing, got {self.timing!r}")
        if self.seeded_bug not in SEEDED_BUGS:
            raise ConfigurationError(f"seeded_bug must be one of {SEEDED_BUGS}, got {self.seeded_bug!r}")
        if not isinstance(self.link_bandwidth, (int, float)) or self.link_bandwidth <= 0:
            raise ConfigurationError(f"link_bandwidth must be a positive number of GB/s, got {self.link_bandwidth!r}")
        if self.link_bytes_per_cycle > SECTOR_BYTES:
            raise ConfigurationError(
                f"link_bandwidth must be at most {SECTOR_BYTES * TOTAL_CHANNELS / self.channels:g} GB/s with "
                f"{self.channels} channels (a link moves one {SECTOR_BYTES} B flit a cycle), "
                f"got {self.link_bandwidth:g}"
            )
        self._check_tags()
        if self.tracker_sets % self.tracker_banks:
            raise ConfigurationError(f"tracker_banks must divide tracker_sets ({self.tracker_sets})")
        if self.tracker_banks > 1 << self.wg_bits:
            raise ConfigurationError("tracker_banks must be at most 2**wg_bits")
        if self.trigger_blocks < 2 * self.tracker_banks:
            raise ConfigurationError(f"trigger_blocks must be at least twice tracker_banks ({self.tracker_banks})")
        if self.set_bits >= self.wg_bits:
            raise ConfigurationError(
                f"wg_bits must be greater than log2(tracker_sets) = {self.set_bits}, got {self.wg_bits}"
            )

    def _check_tags(self) -> None:
        if not isinstance(self.tracker_tags, bool):
            raise ConfigurationError(f"tracker_tags must be true or false, got {self.tracker_tags!r}")
        if self.tracker_tags and self.tracker_sets > MAX_TAGGED_SETS:
            raise ConfigurationError(
                f"tracker_sets must be at most {MAX_TAGGED_SETS} with tracker_tags; got {self.tracker_sets}"
            )
        if not self.tracker_tags and self.tracker_ways != 1 << self.wf_bits:
            raise ConfigurationError(
                f"tracker_ways must be {1 << self.wf_bits} without tracker_tags (a place for each wf); "
                f"got {self.tracker_ways}"
            )

    @property
    def va_sector_bits(self) -> int:
        """Width of a virtual address counted in sectors."""
        return self.va_bits - SECTOR_BITS

    @property
    def channel_bits(self) -> int:
        """Address bits that select the channel (just above the 256 B interleave)."""
        return (self.channels - 1).bit_length()

    @property
    def range_bits(self) -> int:
        """Width of a range-table index."""
        return (self.ranges - 1).bit_length()

    @property
    def block_bits(self) -> int:
        """Width of a trigger-table index."""
        return (self.trigger_blocks - 1).bit_length()

    @property
    def set_bits(self) -> int:
        """Width of a Tracker set index."""
        return (self.tracker_sets - 1).bit_length()

    @property
    def tag_bits(self) -> int:
        """Width of a Tracker tag: {wg MSBs, wf}; 0 without tags."""
        return self.wg_bits - self.set_bits + self.wf_bits if self.tracker_tags else 0

    @property
    def tracker_entry_bits(self) -> int:
        """Bits of one Tracker entry: start VA, count, tag, 4 epoch bits, valid (76 at the paper's size)."""
        return self.va_sector_bits + self.count_bits + self.tag_bits + 4 + 1

    @property
    def tracker_bytes(self) -> int:
        """Storage of the Tracker in bytes (19,456 at the paper's size)."""
        return self.tracker_sets * self.tracker_ways * self.tracker_entry_bits // 8

    @property
    def link_bytes_per_cycle(self) -> float:
        """Bytes a cycle that this slice's link moves per direction (1 GHz)."""
        return self.link_bandwidth * self.channels / TOTAL_CHANNELS


PRESETS: dict[str, Configuration] = {
    "paper": Configuration(name="paper"),
    "quad": Configuration(name="quad", channels=4, link_receive_packets=128, dma_packets=16),
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
        store_packets=1,
        link_receive_packets=1,
        tracker_fetches=1,
    ),
}
"""Named configurations: `paper` is one channel slice of the paper's GPU, `quad` four channels, `wide` for up to 32
GPUs, `tiny` has every buffer at one entry (the deadlock test)."""


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
