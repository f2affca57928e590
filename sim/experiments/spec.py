"""What an experiment is: one frozen record of plain values, for scenarios, sub-layers, sweeps, users' arrays, traces.

A :class:`Spec` can be written down (JSON both ways), compared, hashed, and sent to another process or machine. What
names a spec for people (sub-layers of Table 2, recorded GEMMs, arrays in a file) is in
:mod:`sim.experiments.catalogue`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hw.config import Configuration
from sim.errors import UsageError
from sim.experiments.hardware import Settings, configuration, full_size, of_machine
from sim.experiments.spec_checks import check
from sim.experiments.spec_values import (
    ARRAY,
    ARRAY_COLLECTIVES,
    ELEMENT_BYTES,
    HOSTED,
    KERNELS,
    MACHINE,
    MCA,
    PROGRAM,
    TOPOLOGIES,
    TRACE,
    Gpu,
)
from sim.experiments.variants import Variant
from sim.host.limits import DriverError
from sim.host.tiling import Tiling
from sim.topologies.known import topology
from sim.workloads.machines import machine


@dataclass(frozen=True)
class Spec:
    """One experiment. Constructing it checks it: a wrong value is a :class:`sim.errors.UsageError`, and so is a field
    that its compute model does not know.

    Of all: `name` for people, no part of what is simulated; `collective` on `topology` of `gpus` GPUs; `shape` is M, N,
    K: the output is M x N, K the depth on one GPU, each GPU ends with M / gpus rows; `compute` one of COMPUTE_MODELS of
    :mod:`sim.experiments.spec_values`, as all names in capitals, `mode` of MODES; `variant`: what runs, and how it is
    arbitrated; `preset` and the `settings` that differ from it, sorted pairs of field and value (with full-size kernels
    the preset follows from `channels`); `starvation_limit` in cycles, 0 for none; `watchdog`: cycles in which nothing
    of a collective moves on a GPU, after which that ends it, 0 for never; `seed` of operands and of every random
    choice.

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
    the kernels of the collective on compute units as `sharing` of SHARING says, their tiles of all chunks in
    turns; `tile_order` of
    :data:`sim.workloads.program_plans.TILE_ORDERS`. M are the rows of each of its arrays, which are cut into chunks;
    K columns has an array that a GEMM reads as it is gathered. `machine` of :mod:`sim.workloads.machines`, of which the
    square slice is simulated: shape and tile are the slice's, every side shorter by `Machine.side`, the link, the time
    of a workgroup and what the last-level cache leaves of the reads are the machine's. `host_bandwidth` of the
    topologies HOSTED: GB/s of each link from the host, and to it if that is another; without it the machine's,
    or that of all links. `trace`, FILE.npz:KEY of the recorded GEMM of a machine.

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
        check(self)

    def host_rates(self, config: Configuration) -> tuple[float, float] | None:
        """Bytes a cycle of a link from the host and to it, on a node of `config`; None where they are as all links."""
        given, others = self.host_bandwidth, config.link_bandwidth
        if self.machine:
            given = given or tuple(filter(None, (machine(self.machine).host_gb_per_s,)))
            others = machine(self.machine).link_gb_per_s
        if self.topology not in HOSTED or not given:
            return None
        return given[0] / others * config.link_bytes_per_cycle, given[-1] / others * config.link_bytes_per_cycle

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
