"""The GPUs of the systems that T3-RTL is compared with: size, memory, links, and how long a GEMM alone takes.

They stand in `data/machines.toml`, each with its source, and with what its GEMM model was fitted to. The model: a
workgroup of R x C elements takes the time of 2RC(K + K0) operations on one compute unit, where K0 (`fixed_depth`) is
what it costs beside its K steps, and a GEMM takes as many such times as there are waves of workgroups.

`data/h200x4_concurrent.json` and `data/h200x8_gemm_rs_ag_times.json` were recorded for this project on 4 and on 8
NVIDIA H200: GEMMs of sub-layers alone, beside collectives and fused with them, in milliseconds.
"""

import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sim.errors import UsageError

DATA = Path(__file__).parent / "data"
TABLE = DATA / "machines.toml"
LINK_LATENCY_NS = 500.0
"""T3 Table 1; nobody else states one."""
BYTES_PER_CYCLE = 32
"""That a channel moves."""
LINKS = ("ring", "mesh", "switch", "pcie")
ELEMENT_BYTES = {"fp16": 2, "fp32": 4}
WORTH_OVERLAPPING = 1.3
"""Ideal speedup from which on a recorded pair counts: below, noise divides by next to nothing."""
ALIGNED = 8
"""K of a recorded GEMM has to be a multiple of this to count: others ran slowly because of unaligned rows."""


@dataclass(frozen=True)
class Figure:
    """A GEMM alone, m x n with depth k, and the microseconds that it is said to take."""

    m: int
    n: int
    k: int
    us: float


@dataclass(frozen=True)
class GemmModel:
    """`efficiency`, share of a compute unit's rate at which a workgroup works; `fixed_depth`, units of K that it takes
    beside its own; `fit`: what they are fitted to; `figures`: GEMMs to compare with; `worst`: the largest deviation
    from these and `rms` their root mean square, None without any."""

    efficiency: float
    fixed_depth: int
    fit: str
    figures: tuple[Figure, ...] = ()
    worst: float | None = None
    rms: float | None = None


@dataclass(frozen=True)
class Machine:
    """A GPU and its links; `data/machines.toml` says what each number is. Constructing it checks it:
    :class:`sim.errors.UsageError`."""

    name: str
    compute_units: int
    tflops: float
    dtype: str
    memory_tb_per_s: float
    channels: int
    llc_mib: float
    links: str
    link_gb_per_s: float
    tile: tuple[int, int]
    source: str
    gemm: GemmModel = field(compare=False)
    host_gb_per_s: float = 0.0
    llc_memory_side: bool = False
    copy_gb_per_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("tflops", "memory_tb_per_s", "llc_mib", "link_gb_per_s"):
            self._check(name, getattr(self, name), "a positive number", getattr(self, name) > 0)
        for name in ("compute_units", "channels"):
            value = getattr(self, name)
            self._check(name, value, "a whole number of at least 1", isinstance(value, int) and value > 0)
        self._check("channels", self.channels, "a power of two", self.channels & (self.channels - 1) == 0)
        self._check("links", self.links, f"one of {', '.join(LINKS)}", self.links in LINKS)
        self._check("dtype", self.dtype, f"one of {', '.join(ELEMENT_BYTES)}", self.dtype in ELEMENT_BYTES)
        sides = len(self.tile) == 2 and all(side > 0 for side in self.tile)
        self._check("tile", self.tile, "rows and columns", sides)
        for name in ("host_gb_per_s", "copy_gb_per_s"):
            self._check(name, getattr(self, name), "a number of at least 0", getattr(self, name) >= 0)
        efficiency = self.gemm.efficiency
        self._check("efficiency", efficiency, "above 0 and at most 1", 0 < efficiency <= 1)
        self._check("fixed_depth", self.gemm.fixed_depth, "at least 0", self.gemm.fixed_depth >= 0)
        for name in ("source", "fit"):
            text = self.source if name == "source" else self.gemm.fit
            self._check(name, text, "a sentence", bool(text))

    def _check(self, name: str, value: object, allowed: str, holds: bool) -> None:
        if not holds:
            raise UsageError(f"{name} of machine {self.name} must be {allowed}, got {value!r}")

    @property
    def cycle_ns(self) -> float:
        """Of all channels together at full rate: 32 B a cycle each."""
        return BYTES_PER_CYCLE * self.channels / (self.memory_tb_per_s * 1000)

    @property
    def link_bytes_per_cycle(self) -> float:
        """Per direction and port, as one channel's share of the GPU sees it."""
        return self.link_gb_per_s * self.cycle_ns / self.channels

    @property
    def copy_bytes_per_cycle(self) -> float:
        """Of a compute unit that copies, as one channel's share of the GPU sees it, times the channels of a slice; 0:
        nothing is known of it."""
        return self.copy_gb_per_s * self.cycle_ns / self.channels * self.slice_channels

    @property
    def link_latency(self) -> int:
        """In cycles."""
        return round(LINK_LATENCY_NS / self.cycle_ns)

    @property
    def slice_channels(self) -> int:
        """The fewest channels that a square slice has: 1, or 2 where their number is no square."""
        return 1 if math.isqrt(self.channels) ** 2 == self.channels else 2

    @property
    def side(self) -> int:
        """By how much every side of a matrix is shorter in that slice, so that it has the slice's share of the bytes of
        each operand, and as many workgroups."""
        return math.isqrt(self.channels // self.slice_channels)

    def workgroup_us(self, rows: int, columns: int, depth: int) -> float:
        """Of one workgroup's tile, in microseconds."""
        rate = self.tflops * 1e6 * self.gemm.efficiency / self.compute_units
        return 2 * rows * columns * (depth + self.gemm.fixed_depth) / rate

    def gemm_us(self, m: int, n: int, k: int) -> float:
        """Of a GEMM alone, in microseconds: wave after wave of workgroups."""
        rows, columns = self.tile
        waves = -(-(-(-m // rows) * -(-n // columns)) // self.compute_units)
        return waves * self.workgroup_us(rows, columns, k)

    def cycles(self, us: float) -> int:
        """So many microseconds in cycles."""
        return round(us * 1000 / self.cycle_ns)

    def deviations(self) -> list[float]:
        """Of the model from each figure, as shares of it."""
        return [self.gemm_us(figure.m, figure.n, figure.k) / figure.us - 1 for figure in self.gemm.figures]


def machine(name: str) -> Machine:
    """The machine called `name`. Raises :class:`sim.errors.UsageError` when there is none."""
    if name not in machines():
        raise UsageError(f"machine must be one of {', '.join(machines())}; got {name!r}")
    return machines()[name]


@cache
def machines() -> Mapping[str, Machine]:
    """All machines by name."""
    return read_machines(TABLE.read_text())


def read_machines(text: str) -> dict[str, Machine]:
    """The machines of a table as `data/machines.toml`. Raises :class:`sim.errors.UsageError` for one that is wrong."""
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the table of machines is no TOML: {error}") from error
    return {name: _machine(name, entry) for name, entry in entries.items()}


def _machine(name: str, entry: Mapping[str, Any]) -> Machine:
    try:
        gemm = dict(entry["gemm"])
        figures = [Figure(**figure) for figure in gemm.pop("figures", ())]
        for recording in gemm.pop("recordings", ()):
            figures += recorded_gemms(recording)
        plain = {key: value for key, value in entry.items() if key not in ("gemm", "tile")}
        return Machine(name=name, tile=tuple(entry["tile"]), gemm=GemmModel(**gemm, figures=tuple(figures)), **plain)
    except (KeyError, TypeError) as error:
        raise UsageError(f"machine {name} lacks a field or has one too many: {error}") from error


def recorded_overlap(model: str, rows: int) -> float | None:
    """Overlap efficiency of PyTorch's fused all-gather and GEMM on four H200, the mean of the sub-layers of `model`
    that were recorded with `rows` rows; None of none."""
    entries = json.loads((DATA / "h200x4_concurrent.json").read_text())["ag_gemm"]
    found = [entry["overlap_eff"] for entry in entries if (entry["model"], entry["M"]) == (model, rows)]
    return sum(found) / len(found) if found else None


def recorded_concurrency(how: str, operation: str) -> float:
    """Percent of the ideal speedup that a GEMM beside an all-gather (`operation` ag) or all-to-all (a2a) reached on
    four H200, by the kernels of NCCL (`how` nccl) or by copy engines (dma): the mean of the pairs recorded whose ideal
    is above :data:`WORTH_OVERLAPPING`."""
    entries = json.loads((DATA / "h200x4_concurrent.json").read_text())["c3"]
    found = [
        entry["pct_ideal"]
        for entry in entries
        if entry["op"] == f"{operation}_{how}" and entry["ideal"] > WORTH_OVERLAPPING
    ]
    return sum(found) / len(found)


def recorded_all_reduces() -> dict[tuple[int, int], float]:
    """Microseconds of NCCL's all-reduce of FP16 numbers on eight H200, by rows and columns."""
    entries = json.loads((DATA / "h200x8_gemm_rs_ag_times.json").read_text())
    return {(entry["M"], entry["N"]): entry["ar_ms"] * 1000 for entry in entries}


def recorded_gemms(recording: str) -> Iterator[Figure]:
    """The GEMMs alone in one of the recordings on H200, those whose rows are aligned."""
    found = json.loads((DATA / recording).read_text())
    for entry in found["ag_gemm"] if isinstance(found, dict) else found:
        if entry["K"] % ALIGNED == 0:
            yield Figure(entry["M"], entry["N"], entry["K"], entry["gemm_ms"] * 1000)
