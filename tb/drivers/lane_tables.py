"""What two link lanes are programmed with: ranks, ranges, sends."""

import random
from dataclasses import dataclass
from itertools import pairwise

from cocotb.triggers import RisingEdge

from hw.link.packet_writer import PeerCheck
from hw.link.parameters import LinkParameters
from hw.range_table import RangeWrite, Word
from hw.send_table import OffsetHigh, SendControl, SendWord, SendWrite
from tb.drivers.lane_pair import SIDES
from tb.drivers.payload import pack

IDS = 12
"""Bits of the packet's number in its wg; the rest is the wg offset of the send."""


@dataclass
class Send:
    """An entry of a side's send table."""

    port: int
    control: int
    offset: int


@dataclass(frozen=True)
class Range:
    """An entry of both sides' range tables: its first sector, the first one behind it, and its control word."""

    first: int
    limit: int
    control: int


class LaneTables:
    """Chooses the tables of a :class:`tb.drivers.lane_pair.LanePair` at random, and programs them."""

    def __init__(self, dut, parameters: LinkParameters):
        self.dut, self.parameters = dut, parameters
        self.ranks: dict[str, int] = {}
        self.reach: dict[int, Range] = {}
        """Ranges by their places in the table."""
        self.sends: dict[str, list[Send]] = {side: [] for side in SIDES}

    def signal(self, side: str, name: str):
        return getattr(self.dut, f"{side}_{name}")

    def choose_ranks(self) -> None:
        """Ranks of the sides, two of all that can be."""
        self.ranks = dict(zip(SIDES, random.sample(range(64), 2), strict=True))

    def knows(self, side: str, rank: int) -> None:
        """The ports of `side` take packets of `rank` only."""
        self.signal(side, "peer").value = pack(PeerCheck, rank=rank, checked=1)

    def choose_ranges(self) -> None:
        """Ranges that together are all addresses but the last."""
        top = 1 << self.parameters.va_sector_bits
        count = min(4, self.parameters.ranges)
        firsts = [0, *sorted(random.sample(range(1, top * 3 // 4), count - 1)), top - 1]
        places = random.sample(range(self.parameters.ranges), count)
        self.reach = {
            place: Range(first, after, random.getrandbits(32) | 1)
            for place, (first, after) in zip(places, pairwise(firsts), strict=True)
        }

    async def program_ranges(self, valid: bool = True) -> None:
        """All addresses are in ranges, on both sides, or none."""
        for place in range(self.parameters.ranges):
            known = self.reach.get(place, Range(0, 0, 0))
            words = [(Word.CONTROL, known.control if valid else 0)]
            words += [(Word.BASE_LOW, known.first & 0xFFFFFFFF), (Word.BASE_HIGH, known.first >> 32)]
            words += [(Word.LIMIT_LOW, known.limit & 0xFFFFFFFF), (Word.LIMIT_HIGH, known.limit >> 32)]
            for word, value in words:
                self.dut.ranges.value = pack(RangeWrite, valid=1, index=place, word=word.value, data=value)
                await RisingEdge(self.dut.clk)
        self.dut.ranges.value = 0

    def place_of(self, va: int) -> int:
        """Place in the table of the range that `va` is in."""
        return next(place for place, known in self.reach.items() if known.first <= va < known.limit)

    def goes_over(self, va: int, length: int) -> bool:
        """Whether sectors from `va` on lie in more than one place."""
        return self.place_of(va) != self.place_of(va + length - 1)

    def address(self, side: str, sends: list[int], length: int) -> int:
        """A random address from which every send leads into one range, often to its beginning or its end."""
        offsets = [self.sends[side][send].offset for send in sends]
        top = 1 << self.parameters.va_sector_bits
        while True:
            va = random.randrange(top // 4)
            if random.random() < 0.3:
                known = random.choice(list(self.reach.values()))
                va = (random.choice([known.first, known.limit - length]) - offsets[0]) % top
            places = [(va + offset) % top for offset in offsets]
            if not any(place + length >= top or self.goes_over(place, length) for place in places):
                return va

    async def program(self, ports: list[int] | None = None) -> None:
        """Fill both send tables: send n by port `ports[n]`; without, every port has one if there are enough."""
        for side, other in SIDES.items():
            self.sends[side] = []
            links, count = self.parameters.links, self.parameters.sends
            by = ports or random.sample(range(links), links) + random.choices(range(links), k=count)
            for index in range(count):
                port = by[index % len(by)]
                control = pack(
                    SendControl,
                    peer=self.ranks[other],
                    access=random.choice([1, 2]),
                    alu=random.getrandbits(2),
                    dtype=random.getrandbits(2),
                    traffic_class=random.getrandbits(2),
                    reserved=random.getrandbits(2),
                    wg_offset=index << IDS,
                )
                offset = random.randrange(1 << self.parameters.va_sector_bits - 4) * 8
                self.sends[side].append(Send(port, control, offset))
            await self.write_sends(side)

    def written(self, port: int) -> int:
        """What may be written for `port`: a port that does not exist acts as the first one."""
        absent = range(self.parameters.links, 1 << OffsetHigh["port"].width)
        return random.choice(absent) if port == 0 and absent and random.random() < 0.5 else port

    async def write_sends(self, side: str) -> None:
        """Program what the send table of `side` is to hold, over garbage."""
        entries = range(self.parameters.sends)
        writes = [(index, word, random.getrandbits(32)) for index in entries for word in SendWord]
        for index, send in enumerate(self.sends[side]):
            high = pack(OffsetHigh, offset=send.offset >> 32, port=self.written(send.port))
            writes += [
                (index, SendWord.CONTROL, send.control),
                (index, SendWord.OFFSET_LOW, send.offset & 0xFFFFFFFF),
                (index, SendWord.OFFSET_HIGH, high),
            ]
        # What is written to entries that there are not changes none of those that there are.
        for index in range(self.parameters.sends, 1 << SendWrite["index"].width):
            writes.append((index, random.choice(list(SendWord)), random.getrandbits(32)))
        for index, word, value in writes:
            self.signal(side, "sends").value = pack(SendWrite, valid=1, index=index, word=word.value, data=value)
            await RisingEdge(self.dut.clk)
        self.signal(side, "sends").value = 0
        await RisingEdge(self.dut.clk)
        known = int(self.signal(side, "port_of").value)
        assert [known >> 4 * index & 15 for index in range(self.parameters.sends)] == [s.port for s in self.sends[side]]
