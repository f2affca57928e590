"""What a build is protected by, and what its protected memories say and are told."""

from dataclasses import dataclass
from enum import IntEnum

from amaranth.hdl import Mux, Value, unsigned
from amaranth.lib import data, enum

from .parameters import Parameters, choice

NONE, LINKS, ALL = LEVELS = ("none", "links", "all")


@dataclass(frozen=True)
class ProtectionParameters(Parameters):
    """`protection`: `none`; `links`: flits and state messages are checked and sent again; `all`: memories have check
    bits too. Without protection of links, for wires that lose nothing, a packet slot is free when its last send has
    left."""

    protection: str = choice(LINKS, *LEVELS)

    @property
    def protects_links(self) -> bool:
        """Whether what is on the links is checked, and sent again."""
        return self.protection != NONE

    @property
    def protects_memories(self) -> bool:
        """Whether memories have check bits."""
        return self.protection == ALL


class ProtectedMemory(enum.Enum, shape=4):
    """Memories with check bits. Their addresses: of COUNTERS a set of the Tracker and, in the lowest 5 bits, the way,
    or the number of ways for how many counters of the set are spilled; of TRIGGERS an entry of the trigger table. What
    waits as READY_BLOCKS or READY_LAUNCHES, or is SPILLED to the backing store, has only the number of the Tracker's
    bank: a self test turns bits of what is stored there next. SECTORS on their way have the number of the channel at
    whose DRAM the error was found, wherever it happened; a self test turns a bit of the next that a controller keeps,
    or, of PACKETS, of the next in a slot of the lane with that number, which the peer that it is sent to finds. QUEUES
    hold what goes with data through a lane, whose number they have, or come back from the backing store (the number of
    lanes), or are a doorbell's commits (one more): a self test turns the parity (bit 0) of what the controller of the
    channel with that number keeps next. TABLES are the words of the range table and the send table that software reads
    back, by their places in the register map, counted in words from the range table on; TABLE_COPIES are those in the
    blocks that use them, and have a bit for each of :class:`TableUser` that met a wrong one: a self test has the word
    of TABLES at that address broadcast anew with bits turned, of which bit 32 is the parity."""

    COUNTERS = 0
    TRIGGERS = 1
    READY_BLOCKS = 2
    READY_LAUNCHES = 3
    SPILLED = 4
    SECTORS = 5
    PACKETS = 6
    TABLES = 7
    TABLE_COPIES = 8
    QUEUES = 9


class TableUser(IntEnum):
    """Kinds of blocks with copies of words of the range table and the send table: number of their bit."""

    ADDRESS_MAP = 0
    DMA = 1
    RECEIVER = 2
    SENDER = 3
    TRACKER = 4
    MEMORY_CLEAR = 5
    EPOCH = 6


TRACKER_MEMORIES = tuple(ProtectedMemory)[:5]
"""Those of a bank of the Tracker."""
ADDRESS_BITS = 20
WAY_BITS = 5
MemoryReport = data.StructLayout({"corrected": unsigned(1), "lost": unsigned(1), "address": unsigned(ADDRESS_BITS)})
"""For a cycle: the word at `address` of a memory had one wrong bit, which was corrected; or more, and is `lost`."""
MemoryUpset = data.StructLayout(
    {
        "valid": unsigned(1),
        "memory": ProtectedMemory,
        "address": unsigned(ADDRESS_BITS),
        "first": unsigned(7),
        "second": unsigned(7),
        "two": unsigned(1),
    }
)
"""For a self test: turn bit `first`, and with `two` also bit `second`, of the word at `address` of `memory`, check bits
behind the others. `valid` is a pulse, which takes back what was not done yet; the rest stays until the next."""


def turned_bits(upset: data.View) -> Value:
    """The bits that `upset` turns, as a mask."""
    return (1 << upset.first) ^ Mux(upset.two, 1 << upset.second, 0)
