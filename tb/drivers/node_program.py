"""Whole nodes that run programs of `sim.collectives`, their doorbells rung by the host."""

import random
from collections.abc import Mapping, Sequence

import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from hw.config import SECTOR_BYTES, Configuration
from hw.messages import Access, Fault, TrafficClass
from hw.registers.map import SEND_BASE, find_register
from hw.send_table import SEND_ENTRY_WORDS, OffsetHigh, SendControl, SendWord
from sim.collectives.compiler import NodeProgram, Placement, compile_program, workgroup_numbers
from sim.collectives.program import Part, Program
from sim.host.range_entries import range_words
from sim.host.register_writes import Write, doorbell_writes, range_writes, retire_writes
from sim.host.tiling import Tiling
from sim.topologies.known import Wiring
from tb.drivers.node_ring import ARRAY, RingBench
from tb.drivers.payload import pack, unpack

ELEMENT = 4
"""Bytes of an element: all arrays are of INT32."""
LOADED = 200
"""Sectors that are read at a time."""


class ProgramBench(RingBench):
    """The host and the compute units of `dut`, a ring without `topology`, for `program`, whose chunks have `tiling`;
    arrays lie one after another, and behind them the Tracker's backing store. A chunk's data is an array of (rows,
    columns)."""

    def __init__(self, dut, config: Configuration, program: Program, tiling: Tiling, topology: Wiring | None = None):
        super().__init__(dut, config, program.gpus, tiling, topology)
        self.use(program)

    def use(self, program: Program, bases: Sequence[int] = ()) -> None:
        """Go on with `program`, its arrays on each rank from that one's sector of `bases` on; what memory held is
        lost."""
        self.plan = program
        self.bases = bases or [ARRAY] * self.gpus
        self.sectors = sum(array.chunks for array in program.arrays) * self.tiling.sectors
        self.numbers, _ = workgroup_numbers(program, self.config, self.placements(0))
        self.nodes: dict[int, NodeProgram] = {}

    def placements(self, rank: int) -> dict[str, Placement]:
        """Where the arrays lie on a rank."""
        answer, end = {}, self.bases[rank]
        for array in self.plan.arrays:
            answer[array.name] = Placement(end, self.tiling)
            end += array.chunks * self.tiling.sectors
        return answer

    async def unlock(self, rank: int) -> None:
        """End the epoch before, if there was one: until it is drained, tables are locked."""
        await self.control(rank, disarm=1)
        await self.wait(rank, "drained")

    async def plain(self, rank: int) -> None:
        """All arrays are plain memory: for what must lie there before the program starts."""
        await self.unlock(rank)
        words = range_words(self.config, base=self.bases[rank], sectors=self.sectors)
        await self.write(rank, range_writes(self.config, 0, words))

    async def program(self, rank: int, epoch: int = 1) -> None:
        """The program, and the backing store."""
        self.nodes[rank] = compile_program(
            self.plan,
            self.config,
            self.topology,
            rank,
            self.placements(rank),
            epoch=epoch,
            backing=self.bases[rank] + self.sectors + 8,
        )
        await self.unlock(rank)
        used = len(self.nodes[rank].ranges) + 1
        retired = retire_writes(self.config, used)
        await self.write(rank, [*self.settings(), *self.to_peers(rank, self.nodes[rank].writes), *retired])

    def to_peers(self, rank: int, writes: Sequence[Write]) -> list[Write]:
        """The writes of a rank's program, sends for where the arrays lie on the peers: the offset of a send is a
        distance, which the compiler takes from arrays that lie on all GPUs alike."""
        programmed, moved = dict(writes), {}
        for number in range(self.config.sends):
            control, low, high = (SEND_BASE + 4 * (SEND_ENTRY_WORDS * number + word) for word in SendWord)
            if control not in programmed:
                continue
            peer = unpack(SendControl, programmed[control])["peer"]
            upper = unpack(OffsetHigh, programmed[high])
            offset = (upper["offset"] << 32 | programmed[low]) + self.bases[peer] - self.bases[rank]
            offset %= 1 << self.config.va_sector_bits
            moved[low] = offset & 0xFFFF_FFFF
            moved[high] = pack(OffsetHigh, **upper | {"offset": offset >> 32})
        return [(address, moved.get(address, value)) for address, value in writes]

    def chunk_data(self) -> np.ndarray:
        """Random elements of a chunk."""
        size = self.tiling.rows, self.tiling.columns
        return np.frombuffer(random.randbytes(ELEMENT * size[0] * size[1]), dtype=np.uint32).reshape(size)

    def store_part(self, rank: int, part: Part, data: np.ndarray) -> None:
        """Queue the stores of a kernel on `rank` to one chunk, tiles in random order."""
        tiling, base = self.tiling, self.placements(rank)[part.array].chunk(part.chunk)
        rows = np.zeros((tiling.rows, tiling.pitch_sectors * SECTOR_BYTES), dtype=np.uint8)
        rows[:, : tiling.columns * ELEMENT] = data.view(np.uint8)
        tiles = [(wg, wf) for wg in range(tiling.workgroups) for wf in range(tiling.wfs)]
        random.shuffle(tiles)
        for wg, wf in tiles:
            tile = tiling.wf_tile(wg, wf)
            for row in range(tile.rows):
                for start in range(0, tile.row_bytes, SECTOR_BYTES):
                    sector = tile.offset + row * tiling.pitch_sectors + start // SECTOR_BYTES
                    line, place = divmod(sector, tiling.pitch_sectors)
                    held = rows[line, place * SECTOR_BYTES : (place + 1) * SECTOR_BYTES]
                    request = pack(
                        self.messages.compute_request,
                        access=Access.STORE.value,
                        traffic_class=TrafficClass.GEMM.value,
                        va=base + sector,
                        wg=self.numbers[part] + wg,
                        wf=wf,
                        mask=(1 << min(SECTOR_BYTES, tile.row_bytes - start)) - 1,
                        data=int.from_bytes(held.tobytes(), "little"),
                    )
                    self.compute[rank][self.channel(base + sector)].queue.append(request)

    async def lay(self, rank: int, parts: Mapping[Part, np.ndarray]) -> None:
        """Put data into the memory of `rank`, which then is programmed."""
        await self.plain(rank)
        for part, data in parts.items():
            self.store_part(rank, part, data)
        for source in self.compute[rank]:
            await source.drain()
        await ClockCycles(self.dut.clk, 8)
        await self.wait(rank, "idle")
        await self.program(rank)

    async def ring_doorbells(self, rank: int) -> None:
        """Ring for all that lies in memory, whole regions or a few workgroups at a time."""
        for item in self.nodes[rank].ranges:
            if not item.region.doorbell:
                continue
            first, end = item.wg_base, item.wg_base + item.tiling.workgroups
            while first < end:
                count = random.choice((end - first, random.randint(1, end - first)))
                await self.ring_doorbell(rank, doorbell_writes(self.config, item.index, first, count))
                first += count

    async def ring_doorbell(self, rank: int, writes: list[Write]) -> None:
        """One ring; returns at the end of the walk."""
        await self.write(rank, writes)
        for _ in range(self.limit // 5):
            if not await self.status(rank, "doorbell"):
                return
        raise AssertionError(f"rank {rank}: the doorbell's walk does not end")

    async def done(self) -> None:
        """Wait until every rank is done."""
        for _ in range(self.limit):
            if int(self.dut.done.value) == (1 << self.gpus) - 1:
                return
            await RisingEdge(self.dut.clk)
        waiting = []
        for rank in self.ranks:
            if not int(self.dut.done.value) >> rank & 1:
                seen = await self.read(rank, "done_ranges_low")
                regions = [item for item in self.nodes[rank].ranges if item.region.updates]
                parts = [str(item.region.part) for item in regions if not seen >> item.index & 1]
                blocks = f"{await self.counter(rank, 'dma_blocks')} of {self.nodes[rank].expected_blocks} blocks"
                waiting.append(f"rank {rank} has sent {blocks} and waits for {', '.join(parts) or 'no part'}")
        raise AssertionError(f"{self.plan.name} did not end: {'; '.join(waiting)}")

    async def held(self, rank: int, part: Part) -> np.ndarray:
        """What the memory of `rank` holds of a chunk."""
        tiling, base = self.tiling, self.placements(rank)[part.array].chunk(part.chunk)
        words = b""
        for first in range(0, tiling.sectors, LOADED):
            got = await self.load(rank, base + first, min(LOADED, tiling.sectors - first))
            assert not any(error for error, _ in got), f"rank {rank}: reads of {part} were refused"
            words += b"".join(data.to_bytes(SECTOR_BYTES, "little") for _, data in got)
        return np.frombuffer(words, dtype=np.uint32).reshape(tiling.rows, -1)[:, : tiling.columns]

    async def counter(self, rank: int, name: str) -> int:
        """The low word of a counter."""
        return await self.read(rank, f"{name}_low")

    async def no_fault(self, rank: int) -> None:
        """Nothing was refused since the last look."""
        count = await self.read(rank, "fault_count")
        mask = find_register(self.config, "fault_record").field("fault").mask
        record = await self.read(rank, "fault_record")
        assert not count, f"rank {rank}: {count} faults, the first is {Fault(record & mask).name}"
