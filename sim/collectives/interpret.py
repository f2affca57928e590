"""What a program does, tile by tile, without any hardware: what every rank holds in the end, and how much it moves.

All ranks go on in step: in a round each takes in what was sent to it in the round before, and each of its kernels
stores its next row of tiles, if nothing holds it up. Only the arithmetic is taken from elsewhere
(:mod:`sim.golden.arithmetic`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sim.collectives.check import check, regions_of
from sim.collectives.cut import Cut, Tile
from sim.collectives.inputs import blank, given
from sim.collectives.program import Access, Does, Kernel, Part, Program, ProgramError, Region, Send, Traffic, Via
from sim.golden.arithmetic import pattern_type, reduce


class Event(NamedTuple):
    """In round `step` rank `rank` wrote `part`: what its own kernel stores, what its doorbell names (both from `sender`
    None), or what rank `sender` sent."""

    step: int
    rank: int
    part: Part
    sender: int | None


@dataclass(frozen=True)
class Outcome:
    """By rank: `memory` what each chunk holds; `moved` what was moved, by array; `sent` the chunks in the order in
    which they were sent, by DMA or by the stores of a kernel; `waited` what a kernel found in the parts that it waited
    for, at that moment; `met` the data of all accesses to each tile, in order. `result` what the ranks are left with,
    shape (gpus, elements); `events` all writes, in order.

    What is moved is in sectors, DMA blocks and WF tiles, or in chunks where chunks are not cut into tiles.
    """

    memory: tuple[dict[Part, np.ndarray], ...]
    moved: tuple[dict[str, Traffic], ...]
    sent: tuple[tuple[Part, ...], ...]
    waited: tuple[list[tuple[Part, np.ndarray]], ...]
    met: tuple[dict[tuple[Part, int], list[np.ndarray]], ...]
    result: np.ndarray
    events: tuple[Event, ...]

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """What each rank moved, all arrays together."""
        return tuple(sum(moved.values(), Traffic()) for moved in self.moved)


class _Message(NamedTuple):
    """Tiles of a chunk under way to a rank: `data` by tile."""

    sender: int
    send: Send
    data: tuple[tuple[int, np.ndarray], ...]


@dataclass
class _Rank:
    """One GPU: its regions, what its memory holds, what each tile was met by, and what was counted."""

    regions: dict[Part, Region]
    memory: dict[Part, np.ndarray] = field(default_factory=dict)
    met: defaultdict[tuple[Part, int], list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    complete: set[tuple[Part, int]] = field(default_factory=set)
    counted: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    sent: list[Part] = field(default_factory=list)
    waited: list[tuple[Part, np.ndarray]] = field(default_factory=list)


class _System:
    """All ranks, and what is on its way between them."""

    def __init__(self, program: Program, cuts: Mapping[str, Cut] | None):
        self.arrays = {array.name: array for array in program.arrays}
        self.cuts = cuts
        self.tiles: dict[str, list[Tile]] = {}
        self.ranks = [_Rank(regions_of(program, rank)) for rank in range(program.gpus)]
        self.leaving: list[_Message] = []
        self.events: list[Event] = []
        self.step = 0

    def tiles_of(self, array: str, shape: tuple[int, int]) -> list[Tile]:
        """The tiles of a chunk of `shape`: the whole of it is one, of one sector, where chunks are not cut."""
        if array not in self.tiles:
            whole = [Tile(0, shape[0], 0, shape[1], 0, 0, 1)]
            self.tiles[array] = whole if self.cuts is None else list(self.cuts[array].tiles())
        return self.tiles[array]

    def shape(self, array: str, elements: int) -> tuple[int, int]:
        """Rows and columns of a chunk."""
        return (1, elements) if self.cuts is None else (self.cuts[array].rows, self.cuts[array].columns)

    def deliver(self, rng: np.random.Generator | None) -> bool:
        """Everything that was sent arrives, or with `rng` some of it, in any order; whether anything was under way."""
        arriving, self.leaving = self.leaving, []
        if rng is not None and arriving:
            arriving = [arriving[index] for index in rng.permutation(len(arriving))]
            some = int(rng.integers(1, len(arriving) + 1))
            arriving, self.leaving = arriving[:some], arriving[some:]
        for sender, send, data in arriving:
            for tile, values in data:
                self._write(send.peer, send.part, tile, values, send.access, sender)
        return bool(arriving)

    def store(self, rank: int, part: Part, data: np.ndarray, down: int) -> None:
        """A kernel of `rank` stores row `down` of the tiles of `part`, of which `data` is the whole."""
        gpu = self.ranks[rank]
        region = gpu.regions[part]
        if region.via is Via.STORE and part not in gpu.sent:
            gpu.sent.append(part)
        for index, tile in enumerate(self.tiles_of(part.array, data.shape)):
            if tile.down != down:
                continue
            values = data[tile.top : tile.bottom, tile.left : tile.right]
            if region.via is Via.STORE:
                self._send(rank, part, region.sends, ((index, values),))
            else:
                self._write(rank, part, index, values, region.store, None)

    def ring_doorbell(self, rank: int, part: Part) -> None:
        """All tiles of a chunk that lies in the memory of `rank` are complete."""
        self.events.append(Event(self.step, rank, part, None))
        for index in range(len(self.tiles_of(part.array, self.ranks[rank].memory[part].shape))):
            self._completed(rank, part, index)

    def open(self, rank: int, kernel: Kernel, part: Part, down: int) -> bool:
        """Whether a workgroup of `part` may begin, in tile row `down`; what it waited for is then noted."""
        gpu = self.ranks[rank]
        awaited = []
        for gate in kernel.awaited(part):
            # A row of tiles is stored at a time here, which needs all columns; and all of what is its rows together.
            together = gate in kernel.column_gates.get(part, ()) or len(kernel.gates[part]) > 1
            whole = not kernel.fine or (kernel.does is Does.MULTIPLY and together)
            tiles = enumerate(self.tiles.get(gate.array, ()))
            wanted = [index for index, tile in tiles if whole or tile.down // kernel.slices == down]
            if not wanted or not all((gate, index) in gpu.complete for index in wanted):
                return False
            first, last = (self.tiles[gate.array][index] for index in (wanted[0], wanted[-1]))
            awaited.append((gate, gpu.memory[gate][first.top : last.bottom].copy()))
        gpu.waited += awaited
        return True

    def _write(self, rank: int, part: Part, index: int, data: np.ndarray, access: Access, sender: int | None) -> None:
        gpu = self.ranks[rank]
        region, array = gpu.regions[part], self.arrays[part.array]
        tile = self._tile(part, index, data)
        source = "local" if sender is None else "arriving"
        gpu.counted[part.array][f"{source}_{access.value}s"] += tile.sectors
        gpu.met[part, index].append(data)
        met = len(gpu.met[part, index])
        self.events.append(Event(self.step, rank, part, sender))
        if part not in gpu.memory:
            gpu.memory[part] = np.zeros(self.shape(part.array, data.size), data.dtype)
        place = gpu.memory[part][tile.top : tile.bottom, tile.left : tile.right]
        # The identity of min and max leaves the first operand as it is.
        fresh = met == 1 and (array.op != "add" or (array.first_touch and region.updates > 0))
        place[:] = data if access is Access.STORE or fresh else reduce(array.op, array.dtype, place, data)
        if region.updates and met > region.updates:
            raise ProgramError(f"{part} is met by more than {region.updates} updates")
        if met == region.updates:
            self._completed(rank, part, index)

    def _tile(self, part: Part, index: int, data: np.ndarray) -> Tile:
        return self.tiles_of(part.array, self.shape(part.array, data.size))[index]

    def _completed(self, rank: int, part: Part, index: int) -> None:
        """A tile is complete: it is counted, and its DMA block sent if it is the last one of it."""
        gpu, tiles = self.ranks[rank], self.tiles[part.array]
        region = gpu.regions[part]
        gpu.counted[part.array]["triggers"] += 1
        gpu.complete.add((part, index))
        block = [other for other, tile in enumerate(tiles) if tile.block == tiles[index].block]
        if not region.sends or not all((part, other) in gpu.complete for other in block):
            return
        gpu.counted[part.array]["blocks"] += 1
        gpu.counted[part.array]["reads"] += sum(tiles[other].sectors for other in block)
        if part not in gpu.sent:
            gpu.sent.append(part)
        places = ((other, tiles[other]) for other in block)
        data = tuple(
            (other, gpu.memory[part][tile.top : tile.bottom, tile.left : tile.right].copy()) for other, tile in places
        )
        self._send(rank, part, region.sends, data)

    def _send(self, rank: int, part: Part, sends: Sequence[Send], data: tuple[tuple[int, np.ndarray], ...]) -> None:
        sectors = sum(self._tile(part, index, values).sectors for index, values in data)
        self.ranks[rank].counted[part.array]["egress"] += len(sends) * sectors
        self.leaving += [_Message(rank, send, data) for send in sends]


class _Item(NamedTuple):
    """What a kernel does next: store tile row `down` of `part`, of which `data` is the whole."""

    kernel: Kernel
    part: Part
    data: np.ndarray
    down: int


def _items(system: _System, program: Program, rank: int, inputs: np.ndarray) -> list[Iterator[_Item]]:
    """What each kernel of `rank` does, in order; what lies in memory is put there.

    A kernel with gates computes, which is left out: it stores zeros.
    """
    kernels, mine = program.kernels(rank), given(program, rank, inputs, system.cuts)
    for part, piece in mine.lies.items():
        system.ranks[rank].memory[part] = piece.copy()
        system.tiles_of(part.array, piece.shape)
    columns = max((piece.shape[1] for piece in (*mine.stores.values(), *mine.lies.values())), default=1)

    def run(number: int, kernel: Kernel) -> Iterator[_Item]:
        for part in kernel.parts:
            zeros = np.zeros(system.shape(part.array, columns), inputs.dtype)
            for split in range(kernel.splits):
                chunk = mine.stores.get((number, part, split), zeros)
                for down in range(system.tiles_of(part.array, chunk.shape)[-1].down + 1):
                    yield _Item(kernel, part, chunk, down)

    return [run(number, kernel) for number, kernel in enumerate(kernels)]


def interpret(
    program: Program,
    inputs: np.ndarray | Sequence[np.ndarray],
    cuts: Mapping[str, Cut] | None = None,
    rng: np.random.Generator | None = None,
) -> Outcome:
    """Run `program`. `inputs`: bit patterns by rank, as for `program.golden`. `cuts`: how the chunks of each array are
    cut into tiles; without them each is one tile. With `rng` nothing is in step: kernels are late, and what was sent
    arrives at any time in any order.

    Raises :class:`ProgramError`, also for a program that :func:`sim.collectives.check.check` refuses.
    """
    check(program)
    system = _System(program, cuts)
    waiting: list[tuple[int, Iterator[_Item], _Item]] = []
    for rank in range(program.gpus):
        for run in _items(system, program, rank, np.asarray(inputs[rank])):
            waiting += [(rank, run, item) for item in (next(run, None),) if item is not None]
        for part, region in system.ranks[rank].regions.items():
            if region.doorbell:
                system.ring_doorbell(rank, part)
    while waiting or system.leaving:
        # Doorbells are rung in round 0, so that nothing arrives before round 1.
        moved = system.step == 0 or system.deliver(rng)
        later = []
        for rank, run, item in waiting:
            late = rng is not None and rng.random() < 0.5
            if late or not system.open(rank, item.kernel, item.part, item.down):
                later.append((rank, run, item))
                moved |= late
                continue
            system.store(rank, item.part, item.data, item.down)
            moved = True
            later += [(rank, run, following) for following in (next(run, None),) if following is not None]
        if not moved:
            rank, _, item = waiting[0]
            raise ProgramError(f"kernel {item.kernel.name} of rank {rank} waits for ever before {item.part}")
        waiting = later
        system.step += 1
    ranks = system.ranks
    nothing = np.zeros(0, pattern_type(program.arrays[0].dtype))
    results = [
        np.concatenate([nothing, *(gpu.memory[part].ravel() for part in program.result(rank))])
        for rank, gpu in enumerate(ranks)
    ]
    return Outcome(
        memory=tuple(rank.memory for rank in ranks),
        moved=tuple({name: Traffic(**counted) for name, counted in rank.counted.items()} for rank in ranks),
        sent=tuple(tuple(rank.sent) for rank in ranks),
        waited=tuple(rank.waited for rank in ranks),
        met=tuple(dict(rank.met) for rank in ranks),
        result=np.stack(results),
        events=tuple(system.events),
    )


@lru_cache
def chunks_sent(program: Program, rank: int) -> tuple[int, ...]:
    """The chunks that `rank` sends, in their order: that in which a kernel would do it."""
    return tuple(part.chunk for part in _orders(program)[rank])


@lru_cache
def _orders(program: Program) -> tuple[tuple[Part, ...], ...]:
    return interpret(program, blank(program)).sent
