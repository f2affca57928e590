"""Sizes of the Tracker, its trigger table and its backing store's port."""

from dataclasses import dataclass

from ..message_parameters import BackingStoreParameters, ChannelParameters
from ..parameters import POWERS_OF_TWO, ConfigurationError, one_of

MAX_TAGGED_SETS = 1024
ENTRY_EPOCH_BITS = 4


@dataclass(frozen=True)
class TrackerParameters(ChannelParameters, BackingStoreParameters):
    """Of the Tracker: `channels` ports for commits; `tracker_sets` x `tracker_ways` counters and `trigger_blocks`
    entries of the trigger table, spread over `tracker_banks`; `tracker_mshrs` counters of a bank on their way back
    from the backing store at once. Without `tracker_tags` the Tracker is a table with a place for every {wg, wf}, of
    `tracker_sets` WGs and all WFs. With `commit_merge_depth` what channels commit for one WF tile is added up on its
    way to the banks, in queues of so many messages (:mod:`hw.tracker.merging`), twice as many in the first ones, where
    commits come in bursts; 0: only while it waits.
    """

    tracker_sets: int = one_of(256, *POWERS_OF_TWO[2:13])
    tracker_ways: int = one_of(8, 1, 2, 4, 8, 16)
    tracker_banks: int = one_of(1, 1, 2, 4, 8)
    tracker_mshrs: int = one_of(8, 1, 2, 4, 8, 16)
    commit_merge_depth: int = one_of(0, 0, 2, 4, 8)
    trigger_blocks: int = one_of(4096, *POWERS_OF_TWO[4:17])
    tracker_tags: bool = True

    def check(self) -> None:
        """Raises :class:`ConfigurationError` when the banks do not divide what they share, or a wg has no tag."""
        super().check()
        if self.tracker_tags and self.tracker_sets > MAX_TAGGED_SETS:
            raise ConfigurationError(
                f"tracker_sets must be at most {MAX_TAGGED_SETS} with tracker_tags; got {self.tracker_sets}"
            )
        if not self.tracker_tags and self.tracker_ways != 1 << self.wf_bits:
            raise ConfigurationError(
                f"tracker_ways must be {1 << self.wf_bits} without tracker_tags (a place for each wf); "
                f"got {self.tracker_ways}"
            )
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

    @property
    def spill_tags(self) -> int:
        """Counters of all banks that may be on their way back at once."""
        return self.tracker_mshrs * self.tracker_banks

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
        """Bits of one Tracker entry: start VA, count, tag, epoch, valid (76 at the paper's size)."""
        return self.va_sector_bits + self.count_bits + self.tag_bits + ENTRY_EPOCH_BITS + 1

    @property
    def tracker_bytes(self) -> int:
        """Storage of the Tracker in bytes (19,456 at the paper's size)."""
        return self.tracker_sets * self.tracker_ways * self.tracker_entry_bits // 8


@dataclass(frozen=True)
class SpillParameters(TrackerParameters):
    """Of the port to the backing store. `far_backing_store`: the channels that are not in the slice keep their share of
    it, behind a port of the node."""

    far_backing_store: bool = False
