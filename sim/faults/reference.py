"""The run in which something goes wrong: a small all-reduce with real data, on a ring if nothing else is said, and
another one right after it on the same tables.

It is small so that a whole run takes some tens of milliseconds, and complete: GEMM, stores to the neighbour, tracked
updates, a Tracker that evicts, DMA blocks, links both ways, memory clear, arming. In the second collective shows what
the first has left behind.
"""

from dataclasses import dataclass, replace
from typing import Any

from hw.config import INTERLEAVE_SECTORS, Configuration
from hw.counters import Counting
from hw.registers.counter_addresses import counters
from hw.registers.fields import Kind
from hw.registers.map import find_register, register_map
from sim.collectives.compiler import backing_sectors
from sim.experiments.array_model import ArrayWork
from sim.experiments.catalogue import collective, shape
from sim.experiments.check import Work
from sim.experiments.experiment import job_of, work_of
from sim.experiments.hardware import Settings
from sim.experiments.job import Build, Job, arrays_at, program_of
from sim.experiments.spec import Spec
from sim.host.program import END, POLL_SET, WRITE, command
from sim.host.register_writes import arm_writes, register_write

SETTINGS: Settings = (
    ("protection", "all"),
    ("link_latency", 30),
    ("link_bandwidth", 512.0),
    ("tracker_sets", 4),
    ("tracker_ways", 1),
    ("tracker_mshrs", 2),
    ("trigger_blocks", 16),
    ("dma_packets", 2),
    ("store_packets", 2),
    ("link_receive_packets", 4),
    ("compute_queue_depth", 4),
    ("communication_queue_depth", 4),
    ("dram_queue_depth", 8),
    ("response_depth", 4),
    ("commit_queue_depth", 8),
    ("remote_queue_depth", 4),
    ("wg_bits", 9),
)
LINK_RETRY, LINK_DEAD, WATCHDOG = 400, 2000, 4000
"""Cycles, as a driver programs them for links of :data:`SETTINGS`: longer than a round trip; than some of them; and
than all that moves nothing for a while."""
BOUND = 16000
"""Cycles that a collective may take, some times those of the reference, and longer than :data:`WATCHDOG` after it."""
SOURCE_SECTORS = 256
"""Of what each GPU adds: for so many GPUs as a campaign may have, so that one build serves all."""
TOPOLOGIES = ("ring", "mesh")
"""On which there is such a run. On a mesh of four GPUs and more, numbers of ports have several bits, and packets have
several sends."""
GRID = 64
"""Cycles between two digests of the whole state."""
CORRECTIONS = ("damaged", "replays", "sessions_cut", "_corrected")
"""Ends of the names of counters of what hardware has put right."""
GPU = "gpu_shell.gpu"
REGISTERS = f"{GPU}.node.registers"
RECORDED = tuple(f"{GPU}.{name}" for name in ("done_cycles", "gemm_cycles", "link_busy_done", "launches"))
"""Variables of the simulated GPU that only its report at the end is made of."""
MEMORY_STATUS = 8
"""The bit of the interrupt status that a corrected memory error sets, in a mask: its interrupt is not enabled."""


def reference_spec(gpus: int = 3, settings: Settings = (), topology: str = TOPOLOGIES[0]) -> Spec:
    """The collective, on hardware with `settings` beside or instead of :data:`SETTINGS`."""
    fields: dict[str, Any] = {
        "name": "faults",
        "shape": (16 * gpus, 32, 0),
        "tile": (8, 32),
        "wfs": 2,
        "settings": tuple((dict(SETTINGS) | dict(settings)).items()),
    }
    if topology == TOPOLOGIES[0]:
        return shape(gpus=gpus, collective="ring-all-reduce", alone=False, **fields)
    # Sums of integers, since contributions of all GPUs come to meet in any order.
    return collective("direct-all-reduce", gpus, wiring=topology, dtype="int32", **fields)


@dataclass(frozen=True)
class Setup:
    """A run ready to be repeated: what the GPUs compute, the `job` of one collective with the host's further phases,
    and `plan`, the lines about what is compared."""

    spec: Spec
    work: Work
    job: Job
    plan: tuple[str, ...]

    @property
    def config(self) -> Configuration:
        """The hardware."""
        return self.job.build.config


def prepare(spec: Spec, watchdog: int = WATCHDOG, compare: bool = True, shorten: bool = True) -> Setup:
    """Two collectives of `spec`; without `compare` no result is, which is a fault of the campaign itself, seeded;
    without `shorten` every run goes to its end, all GPUs in all cycles."""
    work = work_of(spec)
    job = job_of(spec, work)
    config = job.build.config
    build = _build(spec, work, job.build) if isinstance(work, ArrayWork) else job.build
    phases, commands = _phases(config, spec.gpus, watchdog)
    starts = {name: len(job.program) + start for name, start in phases.items()}
    session: dict[str, Any] = {
        **job.session,
        "phases": {**job.session["phases"], **starts},
        "timeout": BOUND,
        "bound": BOUND,
        "grid": GRID,
        "compare": compare,
        "shorten": shorten,
        "fault_campaign": True,
    }
    job = replace(job, build=build, session=session, program=(*job.program, *commands))
    return Setup(spec, work, job, tuple(_plan(job)))


def _build(spec: Spec, work: ArrayWork, build: Build) -> Build:
    """That of a ring, with storage and sources for all numbers of GPUs."""
    program = program_of(spec)
    needed = program.gpus * work.tiling.sectors * len(program.arrays)
    needed += backing_sectors(program, build.config, arrays_at(program, work.tiling))
    return replace(
        build,
        storage_sectors=max(1 << 14, 1 << needed.bit_length()),
        source_sectors=max(SOURCE_SECTORS, 1 << (spec.gpus * work.tiling.sectors - 1).bit_length()),
    )


def _phases(config: Configuration, gpus: int, watchdog: int) -> tuple[dict[str, int], list[int]]:
    """Where further phases of the host begin, and their commands."""
    status = find_register(config, "status")
    ranks = range(gpus)

    def writes(*pairs: tuple[int, int], chosen: range = ranks) -> list[int]:
        return [command(WRITE, rank, *pair) for rank in chosen for pair in pairs]

    def poll(operation: int, field: str) -> list[int]:
        return [command(operation, rank, status.address, status.field(field).mask) for rank in ranks]

    phases = {
        "guard": writes(
            register_write(config, "link_retry", link_retry=LINK_RETRY),
            register_write(config, "link_dead", link_dead=LINK_DEAD),
            register_write(config, "watchdog", watchdog=watchdog),
            register_write(config, "interrupt_enable", fault=1, aborted=1),
        ),
        "again": [
            *writes(register_write(config, "epoch", epoch=2), *arm_writes(config, initialised=True)),
            *poll(POLL_SET, "armed"),
        ],
        "drained": poll(POLL_SET, "drained"),
        "acknowledge": writes(register_write(config, "interrupt_status", fault=1, done=1, aborted=1)),
        **{
            f"abort_{rank}": writes(register_write(config, "control", abort=1), chosen=range(rank, rank + 1))
            for rank in ranks
        },
    }
    starts: dict[str, int] = {}
    commands: list[int] = []
    for name, made in phases.items():
        starts[name] = len(commands)
        commands += [*made, END]
    return starts, commands


def _plan(job: Job) -> list[str]:
    """What is compared: the result, registers that software has written; and what tells of corrections and dead
    links."""
    config = job.build.config
    lines = [f"register {REGISTERS}.{name}" for name in programmed(config)]
    counted = counters(config.links, config.protects_memories)
    names = [counter.name for counter in counted]
    lines += [f"statistic {REGISTERS}.total_{name}" for name in names]
    lines += [f"counter {REGISTERS}.total_{name}" for name in names if counts_corrections(name)]
    lines += [f"recorded {REGISTERS}.total_{name}" for name in names]
    lines += [f"recorded {name}" for name in RECORDED]
    lines += [f"recorded {GPU}.link_{port}.busy_cycles" for port in range(config.links)]
    if config.protects_memories:
        lines.append(f"recorded {GPU}.node.memory_errors.location")
        lines.append(f"recorded {REGISTERS}._status {MEMORY_STATUS}")
    lines += [f"sum {REGISTERS}.total_{item.name}" for item in counted if item.counting is Counting.SUM]
    lines.append("dead .dead")
    for rank, chunks in enumerate(job.results):
        for held in chunks:
            lines += _sectors(rank, held.first, held.tiling.sectors, config.channels)
    return lines


def counts_corrections(name: str) -> bool:
    """Whether the counter `name` counts what hardware has put right."""
    return name.endswith(CORRECTIONS)


def programmed(config: Configuration) -> list[str]:
    """Variables of the register file that hold what software has written."""
    fields = [
        register.member(field)
        for register in register_map(config)
        for field in register.fields
        if field.kind is Kind.READ_WRITE
    ]
    # What software reads of tables with check bits is corrected.
    return [*fields, *(() if config.protects_memories else ("range_table", "send_table"))]


def _sectors(rank: int, first: int, count: int, channels: int) -> list[str]:
    """Sectors of the result that lie in a row in a channel."""
    lines = []
    for block in range(first // INTERLEAVE_SECTORS, -(-(first + count) // INTERLEAVE_SECTORS)):
        low = max(first, block * INTERLEAVE_SECTORS)
        high = min(first + count, (block + 1) * INTERLEAVE_SECTORS)
        local = block // channels * INTERLEAVE_SECTORS + low % INTERLEAVE_SECTORS
        lines.append(f"result {rank} {block % channels} {local} {high - low}")
    return lines
