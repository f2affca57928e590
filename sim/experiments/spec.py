"""What an experiment is: one frozen record of plain values, for scenarios, sub-layers, sweeps, users' arrays, traces.

A :class:`Spec` can be written down (JSON both ways), compared, hashed, and sent to another process or machine. What
names a spec for people (sub-layers of Table 2, recorded GEMMs, arrays in a file) is in
:mod:`sim.experiments.catalogue`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from hw.abort import WATCHDOG_BITS
from hw.config import PRESETS, Configuration
from sim.collectives.known import PROGRAMS
from sim.collectives.program import Sharing
from sim.errors import UsageError
from sim.experiments.hardware import EARLY_GATE, WRONG_ORDER, Settings, configuration, full_size, of_machine
from sim.experiments.variants import GEMM, POLICIES, THRESHOLDS, VARIANTS, Variant, generated
from sim.host.limits import DriverError
from sim.host.tiling import Tiling
from sim.models import ONE_MODEL_CHANNELS
from sim.models.plan_layout import MAX_SLOTS, Kernel
from sim.models.seeded_bugs import SEEDED_BUGS
from sim.models.switch_parameters import MOST_PORTS
from sim.topologies.known import TOPOLOGIES as KNOWN_TOPOLOGIES
from sim.topologies.known import topology
from sim.workloads.machines import machine
from sim.workloads.program_plans import TILE_ORDERS as PROGRAM_ORDERS

ARRAY_COLLECTIVES = ("ring-reduce-scatter", "ring-all-gather", "ring-all-reduce")
"""Those of compute model array; the first one is the only one of full-size kernels."""
TOPOLOGIES = tuple(KNOWN_TOPOLOGIES)
"""All but the first one are of compute model program."""
SWITCH, HOSTED = "switch", ("hosted-ring", "hosted-mesh")
"""Those on which a node alone cannot stand for all."""
ARRAY, KERNELS, TRACE, PROGRAM = "array", "kernels", "trace", "program"
COMPUTE_MODELS = (ARRAY, KERNELS, TRACE, PROGRAM)
"""Where a GPU's stores come from: `array`, a generator that stores a real array in the GEMM's order; `kernels`, GEMM
and communication kernels workgroup by workgroup at full size, times by machine PAPER's formula; `trace`, the same
with the order and the times of the GEMM's workgroups as recorded on a GPU; `program`, the kernels of any collective
tile by tile, with real data."""
MODES = ("mirrored", "ring")
"""`mirrored`: one node whose outgoing traffic comes back as its peers' (the paper's method); of full-size kernels
without data, of programs with data that is the same on all ranks, in chunks as much further on. `ring`: N nodes, data
checked bit for bit."""
OPERATIONS = ("add", "min", "max")
DIRECTIONS = {"cw": 1, "ccw": -1}
"""Way round the ring: `cw` sends to the next rank, as NCCL does."""
INITIALS = ("first-touch", "zeroing")
SHARING = {
    "own": Sharing.OWN,
    "partitioned": Sharing.OWN,
    "side-by-side": Sharing.FOLLOWS,
    "priority": Sharing.PRECEDES,
}
"""On whose compute units the kernels of a collective run beside an independent GEMM: units that the GPU has besides;
some of the GEMM's, from which it keeps away; some of the GEMM's, which came first; the same, and they came first."""
SCHEDULES = ("staggered", "sweep")
"""How workgroups run: `staggered` in stages of 80 (one a CU), or `sweep`, a whole chunk in one stage, so that all its
WF tiles are live at once. Either way the chunks follow in the ring's staggered order."""
PRESET_OF = {1: "paper", 2: "quad", 4: "quad", 8: "gpu", 16: "gpu", 32: "gpu"}
"""By channels of full-size kernels, the preset of which they are so many."""
TILE_ORDERS = ("tuned", "rows")
"""Of a GEMM's tiles within a chunk: as a library tunes it (:mod:`sim.workloads.tile_order`), or row by row whatever it
reads."""
ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "int32": 4}
DTYPES = tuple(ELEMENT_BYTES)
LARGEST_SIDE = 1 << 20
MOST_BIT_ERRORS = 1e-3
"""Of the bits on a link; a packet of 9 flits then arrives whole once in twenty times."""
PROGRAM_FIELDS = ("dtype", "op", "first_touch", "direction")
"""Options of programs that are fields of a spec."""
ARRAY_FIELDS = (
    *("dtype", "op", "tile", "wfs", "dma_block", "direction", "initial", "stalls", "schedule", "alone", "overflow"),
    *("bit_errors", "late_rank", "late_cycles", "bug", "inputs", "choices", "independent", "machine"),
    *("gemm_shape", "sharing", "host_bandwidth"),
)
"""What full-size kernels do not know: they have these at their defaults."""


MCA = generated("mca")


class Gpu(NamedTuple):
    """The GPU, and the slice of it, on which full-size kernels run; see :class:`Spec`."""

    link_bandwidth: float
    compute_units: int
    channels: int
    tracker_ways: int
    tile_order: str
    prefetch: int
    reads_under_way: int
    workgroups_per_unit: int
    communication_units: int
    communication_bandwidth: float


MACHINE: dict[str, Any] = Gpu(75.0, 80, 1, 8, "tuned", 1, 0, 1, 0, 0.0)._asdict()
"""Machine PAPER, how a GEMM's workgroups read, and on what kernels that communicate run."""
MOST_LATE_CYCLES = 10_000_000
"""So that a kernel that waits for its rank to be armed can be told when to begin (`not_before` of a plan)."""
MOST_PREFETCHED, MOST_READS, MOST_PER_UNIT = 2, 255, 3
LEAST_OF_A_UNIT, MOST_OF_A_UNIT = 1, 1024
"""GB/s that a compute unit copies: a piece of a kernel that communicates has 20 bits of cycles, a run 32."""


def _choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed or isinstance(value, bool):
        raise UsageError(f"{name.replace('_', '-')} must be one of {', '.join(map(str, allowed))}; got {value!r}")


def _range(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError(f"{name.replace('_', '-')} must be a whole number from {low} to {high}, got {value!r}")


@dataclass(frozen=True)
class Spec:
    """One experiment. Constructing it checks it: a wrong value is a :class:`sim.errors.UsageError`, and so is a field
    that its compute model does not know.

    Of all: `name` for people, no part of what is simulated; `collective` on `topology` of `gpus` GPUs; `shape` is M, N,
    K: the output is M x N, K the depth on one GPU, each GPU ends with M / gpus rows; `compute` one of
    :data:`COMPUTE_MODELS`, `mode` of :data:`MODES`; `variant`: what runs, and how it is arbitrated; `preset` and the
    `settings` that differ from it, sorted pairs of field and value (with full-size kernels the preset follows from
    `channels`); `starvation_limit` in cycles, 0 for none; `watchdog`: cycles in which nothing of a collective moves
    on a GPU, after which that ends it, 0 for never; `seed` of operands and of every random choice.

    Of the array generator, and of programs: `dtype`, `op`; `tile`, rows and columns of a WG tile; `wfs`, wavefronts it
    is cut into by rows; `dma_block`, WF tiles of a DMA block (0: all of a WG); `direction`, `initial`, `schedule`;
    `stalls`, share of idle cycles forced on every interface in percent; `bit_errors`, probability that a bit on a link
    is wrong; `alone`: the GEMM is first run by itself, which
    the figures of overlap need; `overflow`: the run is wrong unless the Tracker fills up and evicts; with
    `late_cycles`, rank `late_rank` is armed, and its kernels launched, so much later than the others'; `bug`: a fault
    of :data:`sim.experiments.hardware.BUGS`; `inputs`: npz file with the arrays that are reduced, of which `shape`
    describes one GPU's, padded, and K is 0.

    Of programs: `choices`, sorted pairs of an option of the program (`t3rtl explain`) and its value; `independent`: a
    GEMM that has nothing to do with it runs beside it, of `gemm_shape` M, N, K, or of the shape of the arrays without,
    the kernels of the collective on compute units as `sharing` of :data:`SHARING` says, their tiles of all chunks in
    turns; `tile_order` of
    :data:`sim.workloads.program_plans.TILE_ORDERS`. M are the rows of each of its arrays, which are cut into chunks;
    K columns has an array that a GEMM reads as it is gathered. `machine` of :mod:`sim.workloads.machines`, of which the
    square slice is simulated: shape and tile are the slice's, every side shorter by `Machine.side`, the link, the time
    of a workgroup and what the last-level cache leaves of the reads are the machine's. `host_bandwidth` of the
    topologies :data:`HOSTED`: GB/s of each link from the host, and to it if that is another; without it the machine's,
    or that of all links.

    Of full-size kernels (None otherwise): `link_bandwidth`, GB/s per direction of the whole GPU; `compute_units`;
    `channels`, the slice S of its 32; `tracker_ways` of 256 sets; `tile_order` (a trace has its own); `trace`,
    FILE.npz:KEY of a recorded GEMM. How well the GEMM hides its memory's latency: `prefetch`, steps that a workgroup
    reads ahead of the one that computes; `reads_under_way`, sectors that a workgroup has under way in a channel at the
    most, 0 for no limit; `workgroups_per_unit`, which share a compute unit (a trace has its own). Of kernels that
    communicate: `communication_units`, compute units they run on, 0 for all; `communication_bandwidth`, GB/s that each
    of these copies or adds up at the most, 0 for what memory and link let it.
    """

    name: str = ""
    collective: str = ARRAY_COLLECTIVES[0]
    topology: str = TOPOLOGIES[0]
    gpus: int = 4
    shape: tuple[int, int, int] = (512, 256, 64)
    compute: str = ARRAY
    mode: str = "ring"
    variant: Variant = MCA
    preset: str = ""
    settings: Settings = ()
    starvation_limit: int = 2000
    watchdog: int = 0
    seed: int = 1
    dtype: str = "fp16"
    op: str = "add"
    tile: tuple[int, int] = (128, 128)
    wfs: int = 8
    dma_block: int = 0
    direction: str = "cw"
    initial: str = "first-touch"
    stalls: int = 0
    bit_errors: float = 0.0
    schedule: str = "staggered"
    alone: bool = True
    overflow: bool = False
    late_rank: int = 0
    late_cycles: int = 0
    bug: str = ""
    inputs: str = ""
    choices: Settings = ()
    independent: bool = False
    gemm_shape: tuple[int, ...] = ()
    sharing: str = "own"
    machine: str = ""
    host_bandwidth: tuple[float, ...] = ()
    link_bandwidth: float | None = None
    compute_units: int | None = None
    channels: int | None = None
    tracker_ways: int | None = None
    tile_order: str | None = None
    prefetch: int | None = None
    reads_under_way: int | None = None
    workgroups_per_unit: int | None = None
    communication_units: int | None = None
    communication_bandwidth: float | None = None
    trace: str = ""

    def __post_init__(self) -> None:
        for name in ("shape", "tile", "gemm_shape", "host_bandwidth"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("settings", "choices"):
            object.__setattr__(self, name, tuple(sorted(dict(getattr(self, name)).items())))
        for name, allowed in {
            "collective": tuple(PROGRAMS),
            "topology": TOPOLOGIES,
            "compute": COMPUTE_MODELS,
            "mode": MODES,
        }.items():
            _choice(name, getattr(self, name), allowed)
        _choice("policy", self.variant.policy, tuple(POLICIES))
        _choice("threshold", self.variant.threshold, tuple(THRESHOLDS))
        if self.variant.policy != "mca" and self.variant.threshold != "auto":
            raise UsageError(
                f"threshold has no effect here, it is of policy mca only; got {self.variant.threshold} with "
                f"{self.variant.policy}"
            )
        _range("starvation-limit", self.starvation_limit, 0, 65535)
        _range("watchdog", self.watchdog, 0, (1 << WATCHDOG_BITS) - 1)
        _range("seed", self.seed, 0, (1 << 31) - 1)
        if len(self.shape) != 3:
            raise UsageError(f"shape must be M, N and K, got {self.shape}")
        if self.compute == ARRAY:
            self._check_array()
        elif self.compute == PROGRAM:
            self._check_program()
        else:
            self._check_kernels()

    def _check_array(self) -> None:
        _choice("topology", self.topology, TOPOLOGIES[:1])
        _choice("collective", self.collective, ARRAY_COLLECTIVES)
        for name in ("choices", "independent", "machine", "gemm_shape", "host_bandwidth"):
            if getattr(self, name):
                raise UsageError(f"{name.replace('_', '-')} is of compute model program only, not of array")
        _choice("sharing", self.sharing, ("own",))
        if self.collective != ARRAY_COLLECTIVES[0]:
            for name in ("direction", "bug", "inputs"):
                if getattr(self, name) != Spec.__dataclass_fields__[name].default:
                    raise UsageError(f"{name} is of collective {ARRAY_COLLECTIVES[0]} only, not of {self.collective}")
        self._check_stores((*SEEDED_BUGS, WRONG_ORDER))
        if self.shape[0] % self.gpus:
            raise UsageError(f"shape M must be a multiple of gpus ({self.gpus}), got {self.shape[0]}")
        tiling = self.tiling()
        if tiling.workgroups * self.gpus > 1 << 16:
            raise UsageError(f"shape must give at most 65536 WG tiles, this one gives {tiling.workgroups * self.gpus}")

    def _check_program(self) -> None:
        for name in ("overflow", "schedule"):
            if getattr(self, name) != Spec.__dataclass_fields__[name].default:
                raise UsageError(f"{name} is of compute model array only, not of program")
        if self.tile_order is None:
            object.__setattr__(self, "tile_order", PROGRAM_ORDERS[0])
        _choice("tile-order", self.tile_order, PROGRAM_ORDERS)
        if self.machine:
            self._check_machine()
        self._check_independent()
        self._check_stores((EARLY_GATE,))
        if self.mirrored and self.inputs:
            raise UsageError("mode must be ring with inputs: those of a mirrored node are the same on all ranks")
        if self.topology == SWITCH:
            _range(f"gpus on topology {SWITCH}", self.gpus, 2, MOST_PORTS)
        if self.mirrored and self.topology == SWITCH:
            raise UsageError(f"mode must be ring on topology {SWITCH}: its outputs are shared by different ranks")
        if self.mirrored and self.topology in HOSTED:
            raise UsageError(f"mode must be ring on topology {self.topology}: the host is not like the other ranks")
        self._check_host()
        known = PROGRAMS[self.collective].options
        for name, default in {"op": "add", "initial": "first-touch", "direction": "cw"}.items():
            option = {"initial": "first_touch"}.get(name, name)
            if option not in known and getattr(self, name) != default:
                raise UsageError(f"{self.collective} has no choice of {name}")
        for name, _ in self.choices:
            if name not in known or name in PROGRAM_FIELDS:
                raise UsageError(f"{self.collective} has no choice of {name}")

    def _check_host(self) -> None:
        given = self.host_bandwidth
        if not given:
            return
        if self.topology not in HOSTED:
            raise UsageError(f"host-bandwidth is of topology {' or '.join(HOSTED)} only, not of {self.topology}")
        numbers = all(isinstance(rate, int | float) and not isinstance(rate, bool) for rate in given)
        if len(given) > 2 or not numbers:
            raise UsageError(f"host-bandwidth must be one or two numbers, got {given}")
        others = machine(self.machine).link_gb_per_s if self.machine else self.hardware.link_bandwidth
        if not all(0 < rate <= others for rate in given):
            raise UsageError(
                f"host-bandwidth must be above 0 and at most that of other links, {others:g} GB/s, got "
                f"{' and '.join(f'{rate:g}' for rate in given)}"
            )
        object.__setattr__(self, "host_bandwidth", tuple(map(float, given)))

    def host_rates(self, config: Configuration) -> tuple[float, float] | None:
        """Bytes a cycle of a link from the host and to it, on a node of `config`; None where they are as all links."""
        given, others = self.host_bandwidth, config.link_bandwidth
        if self.machine:
            given = given or tuple(filter(None, (machine(self.machine).host_gb_per_s,)))
            others = machine(self.machine).link_gb_per_s
        if self.topology not in HOSTED or not given:
            return None
        return given[0] / others * config.link_bytes_per_cycle, given[-1] / others * config.link_bytes_per_cycle

    def _check_machine(self) -> None:
        units = machine(self.machine).compute_units
        if units > MAX_SLOTS:
            raise UsageError(f"machine {self.machine} has {units} compute units, {MAX_SLOTS} can be simulated")
        if "channels" in dict(self.settings):
            raise UsageError(f"channels is no setting with machine {self.machine}: its slice has its own")

    def _check_independent(self) -> None:
        _choice("sharing", self.sharing, tuple(SHARING))
        if not self.independent:
            for name, other in {"gemm_shape": self.gemm_shape, "sharing": self.sharing != "own"}.items():
                if other:
                    raise UsageError(f"{name.replace('_', '-')} is of an independent GEMM, and there is none")
            return
        if self.sharing == "partitioned" and not dict(self.choices).get("units"):
            raise UsageError(
                "sharing partitioned has no effect here: it is of a kernel that copies on units, from which the GEMM "
                "keeps away, and none are said"
            )
        if not self.gemm_shape:
            object.__setattr__(self, "gemm_shape", self.shape)
        if len(self.gemm_shape) != 3:
            raise UsageError(f"gemm-shape must be M, N and K, got {self.gemm_shape}")
        for name, value, low in zip("MNK", self.gemm_shape, (1, 1, 0), strict=True):
            _range(f"gemm-shape {name}", value, low, LARGEST_SIDE)
        if self.gemm_shape[0] % self.gpus:
            raise UsageError(f"gemm-shape M must be a multiple of gpus ({self.gpus}), got {self.gemm_shape[0]}")

    def _check_stores(self, bugs: tuple[str, ...]) -> None:
        """What is alike of compute models with data."""
        if not self.preset:
            object.__setattr__(self, "preset", "paper")
        _choice("preset", self.preset, tuple(PRESETS))
        for name in (*MACHINE, "trace"):
            if getattr(self, name) not in (None, "") and (name, self.compute) != ("tile_order", PROGRAM):
                raise UsageError(
                    f"{name.replace('_', '-')} is of full-size kernels only, not of compute model {self.compute}"
                )
        for name, allowed in {
            "mode": MODES if self.compute == PROGRAM else ("ring",),
            "variant": (generated(self.variant.policy, self.variant.threshold),),
            "dtype": DTYPES,
            "op": OPERATIONS,
            "direction": tuple(DIRECTIONS),
            "initial": INITIALS,
            "schedule": SCHEDULES,
        }.items():
            _choice(name, getattr(self, name), allowed)
        if self.bug:
            _choice("bug", self.bug, bugs)
        _range("gpus", self.gpus, 2, 32)
        for name, value, low in zip("MNK", self.shape, (1, 1, 0), strict=True):
            _range(f"shape {name}", value, low, LARGEST_SIDE)
        _range("wfs", self.wfs, 1, 8)
        _range("dma-block", self.dma_block, 0, 8)
        if self.dma_block > self.wfs:
            raise UsageError(f"dma-block must be at most wfs ({self.wfs}), got {self.dma_block}")
        _range("stalls", self.stalls, 0, 90)
        if not isinstance(self.bit_errors, int | float) or not 0 <= self.bit_errors <= MOST_BIT_ERRORS:
            raise UsageError(f"bit-errors must be from 0 to {MOST_BIT_ERRORS}, got {self.bit_errors!r}")
        object.__setattr__(self, "bit_errors", float(self.bit_errors))
        _range("late-rank", self.late_rank, 0, self.gpus - 1)
        _range("late-cycles", self.late_cycles, 0, MOST_LATE_CYCLES)
        if self.hardware.channels > ONE_MODEL_CHANNELS and self.bug in SEEDED_BUGS:
            raise UsageError(
                f"bug {self.bug} is of at most {ONE_MODEL_CHANNELS} channels, preset {self.preset} has "
                f"{self.hardware.channels}: say, for example, --set channels=4 --set lanes=2"
            )

    def _check_kernels(self) -> None:
        _choice("topology", self.topology, TOPOLOGIES[:1])
        _choice("collective", self.collective, ARRAY_COLLECTIVES[:1])
        for item in fields(self):
            if item.name in ARRAY_FIELDS and getattr(self, item.name) != item.default:
                raise UsageError(f"{item.name.replace('_', '-')} is of compute model array only, not of {self.compute}")
        for name, value in MACHINE.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        _choice("channels", self.channels, tuple(PRESET_OF))
        preset = PRESET_OF[self.gpu.channels]
        if self.preset not in ("", preset):
            raise UsageError(f"preset follows from channels ({self.channels}: {preset}), got {self.preset!r}")
        object.__setattr__(self, "preset", preset)
        if VARIANTS.get(self.variant.name) != self.variant:
            raise UsageError(f"variant must be one of {', '.join(VARIANTS)}; got {self.variant.name!r}")
        _range("tp", self.gpus, 2, 32)
        for name, value in zip("MNK", self.shape, strict=True):
            _range(f"shape {name}", value, 1, LARGEST_SIDE)
        _choice("tracker_ways", self.tracker_ways, (1, 2, 4, 8, 16))
        _choice("tile_order", self.tile_order, TILE_ORDERS)
        _range("compute_units", self.compute_units, 1, 240)
        _range("prefetch", self.prefetch, 0, MOST_PREFETCHED)
        most = min(MOST_READS, ((1 << Kernel["reads"].width) - 1) // self.gpu.channels)
        _range(
            "reads-under-way" + (f" on {self.channels} channels" if most < MOST_READS else ""),
            self.reads_under_way,
            0,
            most,
        )
        _range("workgroups-per-unit", self.workgroups_per_unit, 1, MOST_PER_UNIT)
        units = self.gpu.compute_units
        if units * self.gpu.workgroups_per_unit > MAX_SLOTS:
            raise UsageError(
                f"workgroups-per-unit must be at most {MAX_SLOTS // units} with {units} compute units, "
                f"got {self.workgroups_per_unit}"
            )
        self._check_communication()
        if not isinstance(self.link_bandwidth, int | float) or not 1 <= self.link_bandwidth <= 1024:
            raise UsageError(f"link-bandwidth must be from 1 to 1024 GB/s, got {self.link_bandwidth!r}")
        object.__setattr__(self, "link_bandwidth", float(self.link_bandwidth))
        if bool(self.trace) != (self.compute == TRACE):
            raise UsageError("a trace is of compute model trace only, which needs one")
        if self.trace and self.tile_order != "tuned":
            raise UsageError(f"tile-order is the trace's own with a trace, got {self.tile_order!r}")
        if self.trace and self.workgroups_per_unit != 1:
            raise UsageError(f"workgroups-per-unit is the trace's own with a trace, got {self.workgroups_per_unit}")

    def _check_communication(self) -> None:
        _range("communication-units", self.communication_units, 0, self.gpu.compute_units)
        low, high = LEAST_OF_A_UNIT, MOST_OF_A_UNIT
        rate = self.communication_bandwidth
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not (rate == 0 or low <= rate <= high):
            raise UsageError(f"communication-bandwidth must be 0 or from {low} to {high} GB/s, got {rate!r}")
        object.__setattr__(self, "communication_bandwidth", float(rate))
        for name in ("communication_units", "communication_bandwidth"):
            if getattr(self, name) and self.variant.kernels == (GEMM,):
                raise UsageError(
                    f"{name.replace('_', '-')} is of kernels that communicate, and variant {self.variant.name} has none"
                )

    @property
    def gpu(self) -> Gpu:
        """What full-size kernels alone have."""
        assert self.compute in (KERNELS, TRACE)
        return Gpu(*(getattr(self, name) for name in Gpu._fields))

    @property
    def hardware(self) -> Configuration:
        """What a node is, but for what its program takes of it. Raises :class:`sim.errors.UsageError` for settings that
        are no node's."""
        settings = dict(self.settings)
        if self.compute == ARRAY:
            return configuration(self.preset, settings, gpus=self.gpus)
        if self.compute == PROGRAM:
            slice_of = of_machine(machine(self.machine)) if self.machine else {}
            ports = topology(self.topology, self.gpus).ports
            return configuration(self.preset, settings, gpus=self.gpus, links=ports, **slice_of)
        return full_size(self.preset, settings, self.gpu.channels, self.gpu.link_bandwidth, self.gpu.tracker_ways)

    @property
    def mirrored(self) -> bool:
        """Whether one node stands for all, without data."""
        return self.mode == "mirrored"

    @property
    def multiplied(self) -> tuple[int, ...]:
        """M, N and K of the GEMM: the independent one, if there is one."""
        return self.gemm_shape if self.independent else self.shape

    @property
    def gemm_tile(self) -> tuple[int, int]:
        """Rows and columns of the GEMM's tiles: beside an independent one those of the machine, since `tile` is then of
        what is sent."""
        if not (self.independent and self.machine):
            return self.tile
        rows, columns = machine(self.machine).tile
        return rows // machine(self.machine).side, columns // machine(self.machine).side

    def tiling(self, rows: int = 0, columns: int = 0, tile: tuple[int, int] | None = None) -> Tiling:
        """How a chunk of `rows` x `columns` elements is cut into tiles, of `tile` if that is another; one of the array
        generator's without them."""
        tile_rows, tile_columns = tile or self.tile
        try:
            return Tiling(
                rows=rows or self.shape[0] // self.gpus,
                columns=columns or self.shape[1],
                tile_rows=tile_rows,
                tile_columns=tile_columns,
                wfs=self.wfs,
                dtype_bytes=ELEMENT_BYTES[self.dtype],
            )
        except DriverError as error:
            raise UsageError(str(error)) from error

    def to_json(self) -> dict[str, Any]:
        """Plain values, all fields; `settings` as a dictionary. :meth:`from_json` reads it."""
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        variant = {item.name: getattr(self.variant, item.name) for item in fields(Variant)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()} | {
            "variant": variant | {"kernels": list(self.variant.kernels)},
            "settings": dict(self.settings),
            "choices": dict(self.choices),
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Spec":
        """Inverse of :meth:`to_json`. Raises :class:`sim.errors.UsageError` when it is not one."""
        try:
            variant = dict(entry["variant"])
            variant["kernels"] = tuple(variant["kernels"])
            pairs = {name: tuple(entry[name].items()) for name in ("settings", "choices") if name in entry}
            return cls(**{**entry, "variant": Variant(**variant), **pairs})
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"not a spec: {error}") from error


def label(spec: Spec) -> str:
    """Short name of a full-size spec for people: its name, its variant, and whatever is not machine PAPER's; of a
    program its name."""
    if spec.compute == PROGRAM:
        return spec.name
    usual = {"mode": "mirrored", "starvation_limit": 2000, "watchdog": 0, "seed": 1, "settings": (), "trace": ""}
    usual |= MACHINE
    changed = [f"{name}={getattr(spec, name)}" for name, value in usual.items() if getattr(spec, name) != value]
    if spec.trace:
        changed.append("shape=" + "x".join(map(str, (*spec.shape, spec.gpus))))
    return " ".join([spec.name, spec.variant.name, *changed])
