"""Sizes that are the same in every build: the sector, a channel's banks, and how addresses go around the channels.

Source: JESD235 (HBM2); T3 (ASPLOS 2024) Table 1.
"""

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
CHANNEL_SECTOR_BITS = ROW_BITS + (BANKS - 1).bit_length() + COLUMN_BITS
"""Address bits of a sector in its channel."""
TOTAL_CHANNELS = 32
"""C: channels of the whole GPU. A configuration simulates a slice of `channels` of them."""
