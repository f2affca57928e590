"""What a program does, chunk by chunk, without any hardware: what every rank holds in the end, and how much it moves.

All ranks go on in step: in a round each takes in what was sent to it in the round before, and its kernel stores its
next part. Only the arithmetic is taken from elsewhere (:mod:`sim.golden.arithmetic`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from sim.collectives.check import check, regions_of
from sim.collectives.program import Access, Array, Part, Program, ProgramError, Region, Send, Traffic, Via
from sim.golden.arithmetic import pattern_type, reduce


@dataclass
class _Rank:
    """One GPU: its regions, what its memory holds, how often each chunk was met, and what was counted."""

    regions: dict[Part, Region]
    memory: dict[Part, np.ndarray] = field(default_factory=dict)
    met: Counter[Part] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    sent: list[Part] = field(default_factory=list)

    def write(self, array: Array, part: Part, data: np.ndarray, access: Access, source: str) -> list[Send]:
        """An access; the sends of a region that it completes."""
        region = self.regions[part]
        self.counted[f"{source}_{access.value}s"] += 1
        self.met[part] += 1
        if access is Access.STORE or (array.first_touch and region.updates and self.met[part] == 1):
            self.memory[part] = data
        elif part in self.memory or array.op == "add":
            old = self.memory.get(part, np.zeros_like(data))
            self.memory[part] = reduce(array.op, array.dtype, old, data)
        else:
            # The identity of min and max leaves the first operand as it is.
            self.memory[part] = data
        if not region.updates or self.met[part] < region.updates:
            return []
        if self.met[part] > region.updates:
            raise ProgramError(f"{part} is met by more than {region.updates} updates")
        self.counted["triggers"] += 1
        if region.sends:
            self.counted["reads"] += 1
            self.counted["blocks"] += 1
            self.sent.append(part)
        return list(region.sends)


@dataclass(frozen=True)
class Outcome:
    """By rank: `memory` what each chunk holds, `traffic` what was moved, `sent` the chunks in the order in which they
    were sent, by DMA or by the stores of a kernel; `result` what the ranks are left with, shape (gpus, elements)."""

    memory: tuple[dict[Part, np.ndarray], ...]
    traffic: tuple[Traffic, ...]
    sent: tuple[tuple[Part, ...], ...]
    result: np.ndarray


class _System:
    """All ranks, and what is on its way between them."""

    def __init__(self, program: Program):
        self.arrays = {array.name: array for array in program.arrays}
        self.ranks = [_Rank(regions_of(program, rank)) for rank in range(program.gpus)]
        self.leaving: list[tuple[Send, np.ndarray]] = []

    def deliver(self) -> None:
        """Everything that was sent arrives."""
        arriving, self.leaving = self.leaving, []
        for send, data in arriving:
            self._write(send.peer, send.part, data, send.access, "arriving")

    def store(self, rank: int, part: Part, data: np.ndarray) -> None:
        """A kernel of `rank` stores `part`."""
        gpu = self.ranks[rank]
        region = gpu.regions[part]
        if region.via is Via.STORE:
            gpu.sent.append(part)
            self._send(rank, region.sends, data)
        else:
            self._write(rank, part, data, region.store, "local")

    def _write(self, rank: int, part: Part, data: np.ndarray, access: Access, source: str) -> None:
        gpu = self.ranks[rank]
        self._send(rank, gpu.write(self.arrays[part.array], part, data, access, source), gpu.memory[part])

    def _send(self, rank: int, sends: Sequence[Send], data: np.ndarray) -> None:
        self.ranks[rank].counted["egress"] += len(sends)
        self.leaving += [(send, data) for send in sends]


def interpret(program: Program, inputs: np.ndarray | Sequence[np.ndarray]) -> Outcome:
    """Run `program`. `inputs`: by rank the bit patterns that its kernel stores, as for `program.golden`. Several
    kernels on a rank are refused.

    Raises :class:`ProgramError`, also for a program that :func:`sim.collectives.check.check` refuses.
    """
    check(program)
    gpus = range(program.gpus)
    kernels = []
    for rank in gpus:
        if len(program.kernels(rank)) > 1:
            raise ProgramError(f"{program.name} has more than one kernel on rank {rank}, which cannot be interpreted")
        parts = program.gemm(rank).parts
        pieces = np.split(np.asarray(inputs[rank]).ravel(), max(len(parts), 1))
        kernels.append([(part, pieces[sorted(parts).index(part)]) for part in parts])
    system = _System(program)
    for step in range(max(map(len, kernels))):
        system.deliver()
        for rank, kernel in enumerate(kernels):
            if step < len(kernel):
                system.store(rank, *kernel[step])
    while system.leaving:
        system.deliver()
    ranks = system.ranks
    return Outcome(
        memory=tuple(rank.memory for rank in ranks),
        traffic=tuple(Traffic(**rank.counted) for rank in ranks),
        sent=tuple(tuple(rank.sent) for rank in ranks),
        result=np.stack([np.concatenate([ranks[rank].memory[part] for part in program.result(rank)]) for rank in gpus]),
    )


@lru_cache
def chunks_sent(program: Program, rank: int) -> tuple[int, ...]:
    """The chunks that `rank` sends, in their order: that in which a kernel would do it."""
    return tuple(part.chunk for part in _orders(program)[rank])


@lru_cache
def _orders(program: Program) -> tuple[tuple[Part, ...], ...]:
    parts = [len(program.gemm(rank).parts) for rank in range(program.gpus)]
    kind = pattern_type(program.arrays[0].dtype)
    return interpret(program, [np.zeros(number, kind) for number in parts]).sent
