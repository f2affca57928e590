"""On what the payloads between blocks depend: widths, and how many channels and lanes there are."""

from dataclasses import dataclass

from .geometry import CHANNEL_SECTOR_BITS, SECTOR_BITS
from .parameters import ConfigurationError, Parameters, between, one_of
from .protection import ProtectionParameters


@dataclass(frozen=True)
class MessageParameters(Parameters):
    """What the payloads depend on: widths in bits of their fields (`va_bits` of a byte address), and how many ranges
    and packet buffers of the DMA engine there are to be numbered."""

    va_bits: int = between(48, 36, 57)
    wg_bits: int = between(16, 9, 20)
    wf_bits: int = one_of(3, 3)
    count_bits: int = between(17, 8, 24)
    epoch_bits: int = between(8, 4, 8)
    ranges: int = one_of(16, 4, 8, 16, 32, 64)
    dma_packets: int = between(48, 1, 512)

    @property
    def spill_tags(self) -> int:
        """Counters that may be on their way back from the backing store at once; without a Tracker there are none,
        and a tag has a bit."""
        return 1

    @property
    def checks_sectors(self) -> bool:
        """Whether a sector has a parity with it."""
        return False

    @property
    def va_sector_bits(self) -> int:
        """Width of a virtual address counted in sectors."""
        return self.va_bits - SECTOR_BITS

    @property
    def range_bits(self) -> int:
        """Width of a range-table index."""
        return (self.ranges - 1).bit_length()

    @property
    def sends(self) -> int:
        """Entries of the send table."""
        return self.ranges

    @property
    def send_bits(self) -> int:
        """Width of a send-table index."""
        return (self.sends - 1).bit_length()


@dataclass(frozen=True)
class ChannelParameters(MessageParameters, ProtectionParameters):
    """Of blocks that have a port per memory channel, or sort by channel, and may be protected. A node's channels stand
    in `lanes`, each with a DMA walker, packet slots and a lane of every link of its own."""

    channels: int = one_of(1, 1, 2, 4, 8, 16, 32)
    lanes: int = one_of(1, 1, 2, 4, 8, 16, 32)

    def check(self) -> None:
        """Raises :class:`hw.parameters.ConfigurationError` when the lanes do not divide the channels."""
        super().check()
        if self.channels % self.lanes:
            raise ConfigurationError(f"lanes must divide channels ({self.channels}); got {self.lanes}")

    @property
    def checks_sectors(self) -> bool:
        """Whether a sector has a parity with it."""
        return self.protects_memories

    @property
    def channel_bits(self) -> int:
        """Address bits that select the channel (just above the 256 B interleave)."""
        return (self.channels - 1).bit_length()

    @property
    def lane_channels(self) -> int:
        """Channels of a lane: its number is the upper part of theirs."""
        return self.channels // self.lanes

    @property
    def lane_channel_bits(self) -> int:
        """Address bits that select the channel in its lane (just above the 256 B interleave)."""
        return (self.lane_channels - 1).bit_length()

    @property
    def lane_bits(self) -> int:
        """Address bits that select the lane (just above those of the channel)."""
        return (self.lanes - 1).bit_length()

    @property
    def window_bits(self) -> int:
        """Upper bits of a sector address that the DRAM does not tell apart."""
        return self.va_sector_bits - CHANNEL_SECTOR_BITS - self.channel_bits

    @property
    def spill_sector_bits(self) -> int:
        """Width of the number of sectors of the backing store: two records to a sector."""
        return self.wg_bits + self.wf_bits


@dataclass(frozen=True)
class BackingStoreParameters(Parameters):
    """Of blocks through which counters go to the backing store: `spill_queue_depth` requests may wait."""

    spill_queue_depth: int = between(8, 1, 64)
