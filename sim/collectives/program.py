"""A collective is a program: per rank, which regions of which arrays there are, what each does with an access that
reaches it, when it is complete, and what it then does. Knows nothing of the hardware."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import NamedTuple

import numpy as np

from sim.errors import UsageError

MAX_GPUS = 64
"""Ranks that a packet can name."""


class ProgramError(UsageError):
    """A program that contradicts itself, or that the machine cannot run; one sentence."""


def check_counts(**choices: int) -> None:
    """Raises :class:`ProgramError` unless each of the `choices` of a program is at least 1."""
    for choice, count in choices.items():
        if count < 1:
            raise ProgramError(f"{choice} must be at least 1, got {count}")


class Access(Enum):
    """What a write does to memory: replaces it, or is reduced with it."""

    STORE = "store"
    UPDATE = "update"


class Via(Enum):
    """How a region's data reaches its peers: read back by the DMA engine when a block is complete, or never stored here
    at all, each store of a kernel going straight to the peer."""

    DMA = "dma"
    STORE = "store"


class Does(Enum):
    """What the workgroups of a kernel do: multiply what they read of two operands; read as much as they store and
    compute nothing, as a communication kernel does; or read their tile of all that they wait for, and add it up."""

    MULTIPLY = "multiply"
    COPY = "copy"
    ADD = "add"


class Sharing(Enum):
    """On which compute units a kernel runs beside another: on units of its own; on those of the other, as its
    workgroups leave them, since the other came first; or on those of the other, since it came first itself."""

    OWN = "own"
    FOLLOWS = "follows"
    PRECEDES = "precedes"


class Rows(Enum):
    """What the rows of a chunk are of the product of an M x K and a K x N matrix: a share of M, as many as there are
    chunks; all of M; or all of N, of an operand that lies column by column."""

    SHARE = "share"
    ALL = "all"
    COLUMNS = "columns"


class Part(NamedTuple):
    """Chunk `chunk` of array `array`."""

    array: str
    chunk: int

    def __str__(self) -> str:
        return f"{self.array}[{self.chunk}]"


@dataclass(frozen=True)
class Array:
    """An array of `chunks` equal chunks, at the same address on every GPU.

    `dtype` and `op` are names as in :mod:`sim.golden.arithmetic`. With `first_touch` the first update of a tracked
    chunk acts as a store; without, memory holds the identity of `op` before the program starts. `traffic` is the class
    under which the hardware counts its accesses: rs or ag. It consists of so many `pieces`, in each of which every rank
    has a turn, of `together` chunks one after another. `rows` of a chunk: see :class:`Rows`.
    """

    name: str
    chunks: int
    dtype: str = "fp16"
    op: str = "add"
    first_touch: bool = True
    traffic: str = "rs"
    pieces: int = 1
    together: int = 1
    rows: Rows = Rows.SHARE

    @property
    def piece(self) -> int:
        """Chunks of a piece."""
        return self.chunks // self.pieces

    def further(self, chunk: int, ranks: int) -> int:
        """The chunk that is to the rank `ranks` further on what `chunk` is to a rank, where all ranks do the same."""
        first = chunk // self.piece * self.piece
        return first + (chunk - first + ranks * self.together) % self.piece


@dataclass(frozen=True)
class Send:
    """What is sent to rank `peer`, into chunk `chunk` of its `array`, as `access`."""

    peer: int
    array: str
    chunk: int
    access: Access = Access.STORE

    @property
    def part(self) -> Part:
        """Where it arrives."""
        return Part(self.array, self.chunk)


@dataclass(frozen=True)
class Region:
    """One chunk on one rank.

    `store`: what a local store does here. `updates`: accesses per element, local and arriving, after which it is
    complete; 0: it is not tracked. When it is complete it is sent to all of `sends`, read once; `via` STORE: it never
    enters this memory, each local store goes to them. `launch`: each complete block raises a launch event, which opens
    gates. `doorbell`: its data lies in memory before the program starts, and the host makes it complete, without any
    access; with `whole_rows` those for the same peer a row of tiles at a time, for kernels that wait for such.
    """

    array: str
    chunk: int
    store: Access = Access.STORE
    updates: int = 0
    sends: tuple[Send, ...] = ()
    via: Via = Via.DMA
    launch: bool = False
    doorbell: bool = False
    whole_rows: bool = False

    @property
    def part(self) -> Part:
        """Which chunk it is."""
        return Part(self.array, self.chunk)

    @property
    def final(self) -> bool:
        """Whether the rank keeps it: tracked and sent to nobody. The rank's part is over when all such are complete and
        everything is sent."""
        return bool(self.updates) and not self.sends


@dataclass(frozen=True)
class Kernel:
    """A kernel that stores `parts` in this order, each `splits` times, with another addend each time; the order of
    tiles in a part is its own.

    A workgroup of a part in `gates` does not begin before those parts are complete on its rank: all of each, or with
    `fine` its tile row of them; where it multiplies, several are the rows of its part one after another. The same holds
    of `column_gates` for its columns, which are rows of these parts. In the parts in `gates` each tile row may lie in
    so many `slices` of its columns, one below the other; with `fine` a workgroup then begins when the first slice is
    complete, and goes on to each of the others when that is. Workgroups are dispatched in order, and one that
    waits holds up those after it; `order`: the numbers of the tiles of a part, which has so many down and so many
    across, where the program says it.
    `does` says what each reads; `units` compute units it runs on, 0: all that the machine has; `sharing`: whose they
    are. A kernel that copies reads all that it stores, or with `alike`, where all parts are the same, the first one.
    """

    name: str
    parts: tuple[Part, ...]
    splits: int = 1
    gates: Mapping[Part, tuple[Part, ...]] = field(default_factory=dict)
    column_gates: Mapping[Part, tuple[Part, ...]] = field(default_factory=dict)
    fine: bool = False
    slices: int = 1
    order: Callable[[int, int], Sequence[int]] | None = None
    does: Does = Does.MULTIPLY
    units: int = 0
    sharing: Sharing = Sharing.OWN
    alike: bool = False

    def awaited(self, part: Part) -> tuple[Part, ...]:
        """All parts that a workgroup of `part` waits for, or for some of which."""
        return (*self.gates.get(part, ()), *self.column_gates.get(part, ()))

    @property
    def waited(self) -> tuple[Part, ...]:
        """All that it waits for, without those that come again."""
        return tuple(dict.fromkeys(part for own in self.parts for part in self.awaited(own)))

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunks of `parts`."""
        return tuple(part.chunk for part in self.parts)


@dataclass(frozen=True)
class Traffic:
    """What one GPU moves, in chunks: read to be sent on; writes of its memory by its own kernels and by other GPUs;
    sent; and chunks that the DMA engine sends, and whose tiles are triggered."""

    reads: int = 0
    local_stores: int = 0
    local_updates: int = 0
    arriving_stores: int = 0
    arriving_updates: int = 0
    egress: int = 0
    blocks: int = 0
    triggers: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))

    def __mul__(self, factor: int) -> "Traffic":
        return Traffic(*(getattr(self, item.name) * factor for item in fields(self)))

    @property
    def stores(self) -> int:
        """Plain writes of memory."""
        return self.local_stores + self.arriving_stores

    @property
    def updates(self) -> int:
        """Writes of memory that are reduced there."""
        return self.local_updates + self.arriving_updates

    @property
    def arriving(self) -> int:
        """What comes from other GPUs."""
        return self.arriving_stores + self.arriving_updates


@dataclass(frozen=True, eq=False)
class Program:
    """A collective on `gpus` ranks.

    `regions(rank)`, whose doorbells the host rings in this order, those for different peers or of different arrays in
    turns; `kernels(rank)`
    what the compute units store, the kernel that produces the data first, each on slots of its own; `result(rank)` what
    the rank is left with; `lies(rank)`: parts that hold the rank's data before the program starts.

    A rank's inputs are, one after another, what each of its kernels without gates stores, all its parts in the order of
    their numbers, split by split; then what lies in memory. `golden` is a model that knows nothing of programs: from
    the inputs by rank to the results (shape (gpus, elements of a result)). `closed_form(rank)`: what the rank moves, by
    hand, in chunks of each array; `closed_forms`: what one GPU moves in all when others than this hardware do it,
    `kernels` that read and store, and others that a program's file explains.
    """

    name: str
    gpus: int
    arrays: tuple[Array, ...]
    regions: Callable[[int], Iterable[Region]]
    kernels: Callable[[int], tuple[Kernel, ...]]
    result: Callable[[int], tuple[Part, ...]]
    golden: Callable[..., np.ndarray]
    closed_form: Callable[[int], Mapping[str, Traffic]] = lambda rank: {}
    lies: Callable[[int], tuple[Part, ...]] = lambda rank: ()
    closed_forms: Mapping[str, Traffic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 2 <= self.gpus <= MAX_GPUS:
            raise ProgramError(f"{self.name} needs at least 2 GPUs, and at most {MAX_GPUS}, got {self.gpus}")

    def array(self, name: str) -> Array:
        """The array called `name`."""
        try:
            return next(array for array in self.arrays if array.name == name)
        except StopIteration as error:
            raise ProgramError(f"{self.name} has no array called {name}") from error

    def gemm(self, rank: int) -> Kernel:
        """The kernel that produces the data: the first one."""
        return self.kernels(rank)[0]

    def moves(self, rank: int = 0) -> Traffic:
        """The closed form of `rank`, all arrays together: in chunks, where their chunks are equal."""
        return sum(self.closed_form(rank).values(), Traffic())
