"""A collective is a program: per rank, which regions of which arrays there are, what each does with an access that
reaches it, when it is complete, and what it then does. Knows nothing of the hardware."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from sim.errors import UsageError


class ProgramError(UsageError):
    """A program that contradicts itself, or that the machine cannot run; one sentence."""


class Access(Enum):
    """What a write does to memory: replaces it, or is reduced with it."""

    STORE = "store"
    UPDATE = "update"


class Via(Enum):
    """How a region's data reaches its peers: read back by the DMA engine when a block is complete, or never stored here
    at all, each store of a kernel going straight to the peer."""

    DMA = "dma"
    STORE = "store"


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
    under which the hardware counts its accesses: rs or ag.
    """

    name: str
    chunks: int
    dtype: str = "fp16"
    op: str = "add"
    first_touch: bool = True
    traffic: str = "rs"


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
    complete; 0: it is not tracked. When it is complete it is sent to all of `sends`; `via` STORE: it never enters this
    memory, each local store goes to them. `launch`: each complete block raises a launch event.
    """

    array: str
    chunk: int
    store: Access = Access.STORE
    updates: int = 0
    sends: tuple[Send, ...] = ()
    via: Via = Via.DMA
    launch: bool = False

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
    """A kernel that stores `parts`, each once, in this order; the order of tiles in a part is its own."""

    name: str
    parts: tuple[Part, ...]

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

    `regions(rank)` in the order of their arrays and chunks; `kernels(rank)` what the compute units store, the kernel
    that produces the data first; `result(rank)` what the rank is left with. `golden` is a model that knows nothing of
    programs: from what the first kernels store (shape (gpus, elements), in the order of chunks) to the results (shape
    (gpus, elements of a result)). `closed_forms`: what one GPU moves, by hand, under the name of who moves it:
    `hardware` for this program, `kernels` for the same collective done by kernels that read and store, and others that
    a program's file explains.
    """

    name: str
    gpus: int
    arrays: tuple[Array, ...]
    regions: Callable[[int], Iterable[Region]]
    kernels: Callable[[int], tuple[Kernel, ...]]
    result: Callable[[int], tuple[Part, ...]]
    golden: Callable[[np.ndarray], np.ndarray]
    closed_forms: Mapping[str, Traffic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gpus < 2:
            raise ProgramError(f"{self.name} needs at least 2 GPUs, got {self.gpus}")

    def array(self, name: str) -> Array:
        """The array called `name`."""
        try:
            return next(array for array in self.arrays if array.name == name)
        except StopIteration as error:
            raise ProgramError(f"{self.name} has no array called {name}") from error

    def gemm(self, rank: int) -> Kernel:
        """The kernel that produces the data: the first one."""
        return self.kernels(rank)[0]
