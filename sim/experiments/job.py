"""What one start of the simulator is given, whatever computes in it: the result of preparing a spec."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw.config import Configuration
from sim.collectives.compiler import NodeProgram, Placement, compile_program
from sim.collectives.program import Program
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.experiments.hardware import WRONG_ORDER
from sim.experiments.spec import DIRECTIONS, Spec
from sim.host.address_space import ARRAY_BASE
from sim.host.tiling import Tiling
from sim.topologies.ring import ring

EPOCH = 1


@dataclass(frozen=True)
class Build:
    """The simulator that a job needs: `nodes` of `config`, whose memory models keep `storage_sectors` a channel;
    `source_sectors` of arrays to store (0: GPUs that run plans); `seeded_bugs`: a run may switch one on; the C++
    compiler's option `optimize`."""

    config: Configuration
    nodes: int
    storage_sectors: int
    source_sectors: int = 0
    seeded_bugs: bool = False
    optimize: str = "-O1"


@dataclass(frozen=True)
class Job:
    """One run. `session`: what :mod:`sim.simulator.session` reads from job.json; `program`: commands of the host
    (:func:`sim.host.program.host_program`); `plusargs` of the simulator, where a path names a file in the run's
    folder; `write_inputs` writes the memory images or plans into that folder; `window`: cycles per sample of the
    timeline; `seed` of the session. `tiling` is one chunk of the output array; `results[r]`: the chunk that is read
    back from rank r, as patterns of `pattern`, None without data."""

    build: Build
    session: Mapping[str, Any]
    program: tuple[int, ...]
    plusargs: Mapping[str, str | int | Path]
    write_inputs: Callable[[Path], None]
    window: int
    seed: int
    tiling: Tiling
    results: tuple[int, ...]
    pattern: type[np.unsignedinteger] | None


def program_of(spec: Spec, wrong_order: bool = False) -> Program:
    """The collective of `spec`; with `wrong_order` another one, the seeded fault of software."""
    direction = -DIRECTIONS[spec.direction] if wrong_order else DIRECTIONS[spec.direction]
    collective = {"ring-reduce-scatter": ring_reduce_scatter}[spec.collective]
    return collective(spec.gpus, direction, spec.dtype, spec.op, spec.initial == "first-touch")


def output_at(tiling: Tiling) -> dict[str, Placement]:
    """Where the output lies, its chunks cut as `tiling`."""
    return {"output": Placement(ARRAY_BASE, tiling)}


def compiled(
    spec: Spec, config: Configuration, tiling: Tiling, ranks: int, inputs: tuple[int, int], backing: int
) -> list[NodeProgram]:
    """The collective of `spec` for the first `ranks` ranks: register writes, and what the rank then does.

    `tiling` is one chunk of the output; `inputs` (first sector, sectors) is plain memory; `backing` the first sector of
    the Tracker's backing store.
    """
    wrong = spec.bug == WRONG_ORDER
    direction = -DIRECTIONS[spec.direction] if wrong else DIRECTIONS[spec.direction]
    program, wiring = program_of(spec, wrong), ring(spec.gpus, config.links, direction)
    return [
        compile_program(
            program,
            config,
            wiring,
            rank,
            output_at(tiling),
            epoch=EPOCH,
            block_wfs=spec.dma_block or spec.wfs,
            plain=[inputs],
            backing=backing,
        )
        for rank in range(ranks)
    ]
