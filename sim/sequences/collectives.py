"""The collectives of a sequence: every program that a topology serves, with data, small, and all for one build.

A build holds the largest demands of all of them: ranges, entries of the trigger table, link ports, what compute units
store. The hardware is that of the campaign of faults, whose buffers are small and whose Tracker evicts.
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from hw.config import SECTOR_BYTES, Configuration
from hw.registers.map import find_register
from sim.collectives.compiler import NodeProgram
from sim.collectives.known import PROGRAMS
from sim.errors import UsageError
from sim.experiments import program_model
from sim.experiments.catalogue import collective
from sim.experiments.hardware import Settings
from sim.experiments.job import Build, Job, program_of
from sim.experiments.program_check import golden
from sim.experiments.program_job import program_job
from sim.experiments.program_kernels import span_of
from sim.experiments.program_model import PLAIN_RANGES, ProgramWork, program_work, tilings_of
from sim.experiments.spec import Spec
from sim.faults.reference import LINK_DEAD, LINK_RETRY, SETTINGS
from sim.host.program import END, POLL_CLEAR, WRITE, command
from sim.host.register_writes import Write, arbiter_writes, register_write, retire_writes
from sim.simulator.memory_image import to_sectors, write_hex
from sim.topologies.known import Wiring, topology

TOPOLOGIES = ("ring", "ring-one-way", "mesh", "ideal-switch", "switch")
SIZES = (4, 8, 16)
"""Of GPUs: a build serves as many as one of these, or fewer."""
VARIANTS = 3
"""Of each collective: whole tiles of integers; ragged ones; numbers that are rounded, or other integers where their sum
would depend on an order."""
GEMMS = ("ring-all-gather-gemm", "direct-all-gather-gemm", "fetched-gemm", "hosted-gemm")
SLICES = 2
"""Of the depth, where a GEMM can begin with the first: its variant of whole tiles."""
DEPTH = 8
"""Of a GEMM that reads what was gathered, and no other kernel reads anything: one sector to a row."""
WIDER = {16: {"wg_bits": 10}}
"""What collectives on so many GPUs need that those on fewer do not."""
SOURCE_SECTORS = {4: 1 << 12, 8: 1 << 12, 16: 1 << 13}
"""Of what a GPU stores, by size: for the collective that has the most."""
STORAGE_SECTORS = 1 << 14
"""Of a channel."""


def variant_spec(name: str, wiring: str, gpus: int, variant: int, settings: Settings) -> Spec:
    """Variant `variant` of collective `name`. Raises :class:`UsageError` when the topology does not serve it."""
    ragged = variant == 1
    shares = gpus - 1 if name == "hosted-gemm" else gpus
    shape = ((6 if ragged else 8) * shares, 20 if ragged else 16, DEPTH if name in GEMMS else 0)
    choices = {"fine": True, "slices": SLICES} if variant == 0 and "slices" in PROGRAMS[name].options else {}

    def made(dtype: str) -> Spec:
        return collective(
            name,
            gpus,
            wiring=wiring,
            shape=shape,
            tile=(4, 16),
            wfs=2,
            dtype=dtype,
            seed=variant + 1,
            settings=settings,
            choices=choices,
            tile_order="abreast" if choices else None,
            initial="zeroing" if ragged and "first_touch" in PROGRAMS[name].options else "first-touch",
        )

    if variant < 2:
        return made("int32")
    rounded = made("fp16")
    return made("int32") if program_job(rounded, program_work(rounded)).log else rounded


def served(wiring: str, gpus: int) -> tuple[str, ...]:
    """Names of the collectives that there are on so many GPUs."""
    found = []
    for name in PROGRAMS:
        with suppress(UsageError):
            variant_spec(name, wiring, gpus, 0, tuple(SETTINGS))
            found.append(name)
    return tuple(found)


def size_of(gpus: int) -> int:
    """For how many GPUs the build of so many is made."""
    return next(size for size in SIZES if gpus <= size)


@cache
def settings_of(wiring: str, size: int, further: Settings = ()) -> Settings:
    """Of the hardware for up to `size` GPUs, whatever their collective, with `further` ones beside or instead."""
    settings = dict(SETTINGS) | WIDER.get(size, {}) | dict(further)
    ranges = blocks = 0
    for gpus, whole in itertools.product(range(2, size + 1), (0, 1)):
        for name in served(wiring, gpus):
            spec = variant_spec(name, wiring, gpus, whole, tuple(settings.items()))
            program = program_of(spec)
            config = program_model.node_of(spec, program, tilings_of(spec, program))
            ranges, blocks = max(ranges, config.ranges), max(blocks, config.trigger_blocks)
    settings |= {"ranges": ranges, "trigger_blocks": blocks, "links": topology(wiring, size).ports}
    return tuple(settings.items())


@dataclass(frozen=True)
class Ready:
    """A collective that can be part of a sequence: its `name`, and which `variant`; its `job`, and `work`."""

    name: str
    variant: int
    spec: Spec
    work: ProgramWork
    job: Job

    @property
    def text(self) -> str:
        """As it is called in a sequence."""
        return f"{self.name}:{self.variant}"

    def write(self, folder: Path) -> None:
        """What the server reads of it (`sim/models/sequence_server.h`)."""
        folder.mkdir(parents=True)
        config, work = self.job.build.config, self.work
        self.job.write_inputs(folder)
        right = golden(work)
        lines = [f"span {span_of(work.laid, work.program)}"]
        told = self.job.plusargs
        if "gathered" in told:
            lines.append(" ".join(["gathered", *(str(told[f"gathered_{name}"]) for name in _GATHERED)]))
        for node, row, held in zip(self.job.nodes, right, self.job.results, strict=True):
            _write_commands(folder / f"commands{node.rank}.hex", [table_commands(config, node)])
            _write_commands(folder / f"doorbells{node.rank}.hex", doorbell_commands(config, node))
            sectors, flat = [], row.ravel()
            for first, tiling in held:
                count = tiling.rows * tiling.columns
                piece, flat = flat[:count].reshape(tiling.rows, tiling.columns), flat[count:]
                sectors.append(to_sectors(piece, tiling.pitch_sectors))
                last = tiling.columns * tiling.dtype_bytes - SECTOR_BYTES * (tiling.pitch_sectors - 1)
                lines.append(f"result {node.rank} {first} {tiling.sectors} {tiling.pitch_sectors} {last}")
            if sectors:
                write_hex(folder / f"expected{node.rank}.hex", np.concatenate(sectors))
        (folder / "job.txt").write_text("\n".join(lines) + "\n")


_GATHERED = ("first", "sectors", "pitch", "last")


def _write_commands(path: Path, lists: list[list[int]]) -> None:
    path.write_text("".join(f"{item:016x}\n" for commands in lists for item in commands))


def table_commands(config: Configuration, node: NodeProgram) -> list[int]:
    """All that programs a rank, but the number of the epoch; what a longer program left in the range table is made
    invalid."""
    writes: list[Write] = [
        *(write for write in node.writes if write[0] != find_register(config, "epoch").address),
        *retire_writes(config, len(node.ranges) + PLAIN_RANGES),
        register_write(config, "control", clear_counters=1),
    ]
    return [command(WRITE, node.rank, *write) for write in writes]


def doorbell_commands(config: Configuration, node: NodeProgram) -> list[list[int]]:
    """The rings of a rank, an end behind each."""
    status = find_register(config, "status")
    ringing = command(POLL_CLEAR, node.rank, status.address, status.field("doorbell").mask)
    return [[ringing, *(command(WRITE, node.rank, *write) for write in writes), END << 60] for writes in node.doorbells]


def once_commands(config: Configuration, gpus: int) -> list[int]:
    """What is programmed once, after reset."""
    writes = [
        register_write(config, "link_silence", link_silence=1),
        register_write(config, "link_retry", link_retry=LINK_RETRY),
        register_write(config, "link_dead", link_dead=LINK_DEAD),
        register_write(config, "interrupt_enable", fault=1),
        *arbiter_writes(config),
    ]
    return [*(command(WRITE, rank, *write) for rank in range(gpus) for write in writes), END << 60]


@dataclass(frozen=True)
class Collectives:
    """All of a `wiring` of `gpus` GPUs, on one build."""

    wiring: str
    gpus: int
    ready: tuple[Ready, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(dict.fromkeys(item.name for item in self.ready))

    @property
    def config(self) -> Configuration:
        """Of every node."""
        return self.ready[0].job.build.config

    @property
    def topology(self) -> Wiring:
        """How they are joined."""
        return topology(self.wiring, self.gpus)

    @property
    def build(self) -> Build:
        """The simulator, which others of the same size use too."""
        return replace(
            self.ready[0].job.build, source_sectors=SOURCE_SECTORS[size_of(self.gpus)], storage_sectors=STORAGE_SECTORS
        )

    def number(self, text: str) -> int:
        """Of the collective that is called so. Raises :class:`UsageError` when there is none."""
        for number, item in enumerate(self.ready):
            if item.text == text:
                return number
        known = ", ".join(self.names)
        raise UsageError(f"there is no collective {text!r} here, only {known}, each with :0 to :{VARIANTS - 1}")


@cache
def collectives_of(wiring: str, gpus: int, settings: Settings = ()) -> Collectives:
    """Every collective of `wiring`. Raises :class:`UsageError` for a size that it cannot have."""
    return Collectives(wiring, gpus, tuple(_ready(wiring, gpus, settings_of(wiring, size_of(gpus), settings))))


def _ready(wiring: str, gpus: int, settings: Settings) -> Iterator[Ready]:
    for name in served(wiring, gpus):
        for variant in range(VARIANTS):
            spec = variant_spec(name, wiring, gpus, variant, settings)
            work = program_work(spec)
            yield Ready(name, variant, spec, work, program_job(spec, work))
