"""What one start of the simulator is given, whatever computes in it: the result of preparing a spec."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hw.config import Configuration
from hw.geometry import SECTOR_BYTES
from sim.collectives.compiler import NodeProgram, Placement, compile_program
from sim.collectives.independent_gemm import beside_independent_gemm
from sim.collectives.known import PROGRAMS, program
from sim.collectives.program import Program
from sim.errors import UsageError
from sim.experiments.hardware import WRONG_ORDER
from sim.experiments.spec import Spec
from sim.experiments.spec_values import DIRECTIONS, SHARING
from sim.host.address_space import ARRAY_BASE
from sim.host.register_writes import Write, register_write
from sim.host.tiling import Tiling
from sim.models.hbm import MOST_STORAGE
from sim.topologies.known import Wiring
from sim.topologies.ring import ring

EPOCH = 1


@dataclass(frozen=True)
class Build:
    """The simulator that a job needs: `nodes` of `config`, whose memory models keep `storage_sectors` a channel;
    `source_sectors` of arrays to store (0: numbers that depend on the place); `seeded_bugs`: a run may switch one on;
    `plans`: GPUs run plans, as they do without arrays; the C++ compiler's option `optimize`; how they are joined, a
    ring without `topology`."""

    config: Configuration
    nodes: int
    storage_sectors: int
    source_sectors: int = 0
    seeded_bugs: bool = False
    optimize: str = "-O1"
    plans: bool = False
    topology: Wiring | None = None


class Held(NamedTuple):
    """A chunk that is read back: its first sector from the first array on, and how it is cut."""

    first: int
    tiling: Tiling


@dataclass(frozen=True)
class Job:
    """One run. `session`: what it does, for :func:`sim.simulator.session.session_text`; `program`: commands of the host
    (:func:`sim.host.program.host_program`); `plusargs` of the simulator, where a path names a file in the run's
    folder; `write_inputs` writes the memory images or plans into that folder; `window`: cycles per sample of the
    timeline. `results[r]`: the chunks that are read back from rank r, as patterns of `pattern`,
    None without data; `log`: the column commands that change memory are wanted too; `nodes`: by simulated rank what the
    collective is on the hardware, none where kernels are the collective."""

    build: Build
    session: Mapping[str, Any]
    program: tuple[int, ...]
    plusargs: Mapping[str, str | int | Path]
    write_inputs: Callable[[Path], None]
    window: int
    results: tuple[tuple[Held, ...], ...]
    pattern: type[np.unsignedinteger] | None
    log: bool = False
    nodes: tuple[NodeProgram, ...] = ()


def program_of(spec: Spec, wrong_order: bool = False) -> Program:
    """The collective of `spec`; with `wrong_order` another one, the seeded fault of software."""
    direction = -DIRECTIONS[spec.direction] if wrong_order else DIRECTIONS[spec.direction]
    known = PROGRAMS[spec.collective].options
    said = {
        "dtype": spec.dtype,
        "op": spec.op,
        "first_touch": spec.initial == "first-touch",
        "direction": direction,
        **dict(spec.choices),
    }
    made = program(spec.collective, spec.gpus, **{name: value for name, value in said.items() if name in known})
    if not spec.independent:
        return made
    rows, columns, _ = spec.gemm_shape
    return beside_independent_gemm(made, rows // spec.gpus * columns, SHARING[spec.sharing])


def fault_writes(spec: Spec, config: Configuration) -> list[Write]:
    """Writes that have a fault end the run, and the watchdog that `spec` asks for make one."""
    watchdog = [register_write(config, "watchdog", watchdog=spec.watchdog)] if spec.watchdog else []
    return [*watchdog, register_write(config, "interrupt_enable", fault=1)]


def forced_idle(spec: Spec) -> int:
    """Idle cycles of 256 that are forced on every interface."""
    return round(spec.stalls / 100 * 256)


def slowed_down(bit_errors: float) -> float:
    """How many times as long a run may take on links with so many errors a bit, at the most: a packet of 9 flits that
    is damaged costs a round trip, the time of some ten packets, and so does each that is damaged again."""
    damaged = 1 - (1 - bit_errors) ** (9 * 320)
    return 1 + 20 * damaged / (1 - damaged)


def time_limit(spec: Spec, compute: int, link: float, sectors: int) -> int:
    """Cycles after which a run is given up that computes for so many, has links busy for so many, and whose arrays have
    so many `sectors`."""
    usual = (2 * compute + 3 * link + 60 * sectors + 200_000) * (1 + 12 * spec.stalls / 100)
    return int(usual * slowed_down(spec.bit_errors))


def sampling_window(cycles: float) -> int:
    """Cycles per sample of the timeline of a run that takes about so many."""
    return 1 << max(4, int(cycles).bit_length() - 8)


def behind_arrays(sectors: int) -> int:
    """First sector of the Tracker's backing store, behind arrays of so many."""
    return ARRAY_BASE + -(-sectors // 8) * 8


def channel_sectors(config: Configuration, sectors: int) -> int:
    """Sectors that a channel's model keeps of so many: a power of two, so that runs alike share a build. Raises
    :class:`UsageError` when they are more than it can keep."""
    kept = 1 << (sectors // config.channels + 8).bit_length()
    if kept > MOST_STORAGE:
        raise UsageError(
            f"arrays and backing store of a GPU take {sectors * SECTOR_BYTES:,} bytes; the model of its memory keeps "
            f"less than {config.channels * MOST_STORAGE * SECTOR_BYTES:,} of {config.channels} channels: the shape "
            "must be smaller, or the channels more"
        )
    return kept


def set_up(config: Configuration, nodes: Sequence[NodeProgram]) -> list[list[Write]]:
    """By rank the writes that program a collective; its counters begin at 0."""
    return [[*node.writes, register_write(config, "control", clear_counters=1)] for node in nodes]


def laid_out(
    made: Program, tilings: Mapping[str, Tiling], gaps: Mapping[str, int] | None = None
) -> dict[str, Placement]:
    """Where the arrays of `made` lie, one after another, their chunks cut as `tilings` says, with `gaps` of so many
    sectors behind each."""
    found, base = {}, ARRAY_BASE
    for array in made.arrays:
        place = Placement(base, tilings[array.name], (gaps or {}).get(array.name, 0))
        found[array.name] = place
        base += array.chunks * place.stride
    return found


def arrays_at(program: Program, tiling: Tiling) -> dict[str, Placement]:
    """The same with all chunks cut as `tiling`."""
    return laid_out(program, dict.fromkeys((array.name for array in program.arrays), tiling))


def results_of(program: Program, tiling: Tiling) -> tuple[tuple[Held, ...], ...]:
    """By rank the chunks that it is left with."""
    places = arrays_at(program, tiling)
    return tuple(
        tuple(Held(places[part.array].chunk(part.chunk) - ARRAY_BASE, tiling) for part in program.result(rank))
        for rank in range(program.gpus)
    )


def compiled(
    spec: Spec,
    program: Program,
    config: Configuration,
    wiring: Wiring,
    places: Mapping[str, Placement],
    ranks: int,
    inputs: tuple[int, int],
    backing: int,
) -> list[NodeProgram]:
    """`program`, as `spec` cuts it into blocks, for the first `ranks` ranks: register writes, and what the rank then
    does.

    `places` are its arrays; `inputs` (first sector, sectors) is plain memory; `backing` the first sector of the
    Tracker's backing store.
    """
    return [
        compile_program(
            program,
            config,
            wiring,
            rank,
            places,
            epoch=EPOCH,
            block_wfs=spec.dma_block or spec.wfs,
            plain=[inputs],
            backing=backing,
        )
        for rank in range(ranks)
    ]


def compiled_ring(
    spec: Spec, config: Configuration, tiling: Tiling, ranks: int, inputs: tuple[int, int], backing: int
) -> list[NodeProgram]:
    """The collective of `spec` on a ring, all chunks cut as `tiling`; the wrong one, if that is its fault."""
    wrong = spec.bug == WRONG_ORDER
    direction = -DIRECTIONS[spec.direction] if wrong else DIRECTIONS[spec.direction]
    made, wiring = program_of(spec, wrong), ring(spec.gpus, config.links, direction)
    return compiled(spec, made, config, wiring, arrays_at(made, tiling), ranks, inputs, backing)
