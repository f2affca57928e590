"""What the command line asks of a ring run, checked field by field before anything is built.

:class:`RingRequest` holds only plain values, so that a scenario can be written down, compared and sent to a process.
"""

from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import numpy as np

from hw.config import CHOSEN_BUG, PRESETS, SWITCHED_BUGS, Configuration, ConfigurationError, Timing, preset
from sim.errors import UsageError
from sim.experiments.user_arrays import DTYPES, RANKS
from sim.host.limits import DriverError
from sim.host.tiling import Tiling

POLICIES = ("round-robin", "compute-first", "mca", "paced")
THRESHOLDS = ("5", "10", "30", "none", "auto")
OPERATIONS = ("add", "min", "max")
DIRECTIONS = {"cw": 1, "ccw": -1}
"""Way round the ring: `cw` sends to the next rank, as NCCL does."""
INITIALS = ("first-touch", "zeroing")
SCHEDULES = ("staggered", "sweep")
"""How workgroups run: `staggered` in stages of 80 (one a CU), or `sweep`, a whole chunk in one stage, so that all its
WF tiles are live at once. Either way the chunks follow in the ring's staggered order."""
WORKGROUP_SLOTS = 80
ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "int32": 4}
WRONG_ORDER = "wrong_ring_order"
BUGS = (*SWITCHED_BUGS, WRONG_ORDER)
"""Faults a run can be given on purpose, to see it fail."""


def _choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(map(str, allowed))}; got {value!r}")


def _range(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """Configuration fields from `FIELD=VALUE` texts; a timing parameter is `timing.FIELD=VALUE`."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"--set takes FIELD=VALUE, got {text!r}")
        kinds = Timing if name.startswith("timing.") else Configuration
        known = {item.name: item for item in dataclass_fields(kinds)}
        plain = name.removeprefix("timing.")
        if plain not in known or plain in ("timing", "name", "gpus", "seeded_bug"):
            usable = sorted(set(known) - {"timing", "name", "gpus", "seeded_bug"})
            prefix = "timing." if kinds is Timing else ""
            raise UsageError(f"unknown configuration field {name!r}; allowed: {prefix}{f', {prefix}'.join(usable)}")
        settings[name] = _number(name, value, known[plain].default)
    return settings


def _number(name: str, text: str, example: object) -> bool | int | float:
    if isinstance(example, bool):
        if text.lower() not in ("true", "false", "on", "off", "1", "0"):
            raise UsageError(f"{name} must be true or false, got {text!r}")
        return text.lower() in ("true", "on", "1")
    try:
        return float(text) if isinstance(example, float) else int(text, 0)
    except ValueError as error:
        kind = "number" if isinstance(example, float) else "whole number"
        raise UsageError(f"{name} must be a {kind}, got {text!r}") from error


def configuration(name: str, settings: dict[str, Any] | None = None, **changes: Any) -> Configuration:
    """Preset `name` with `settings` (as :func:`parse_settings` gives them); :class:`UsageError` when it cannot be."""
    settings = settings or {}
    timing = {key.removeprefix("timing."): value for key, value in settings.items() if key.startswith("timing.")}
    plain = {key: value for key, value in settings.items() if not key.startswith("timing.")}
    try:
        config = preset(name, **plain, **changes)
        return replace(config, timing=replace(config.timing, **timing)) if timing else config
    except ConfigurationError as error:
        raise UsageError(str(error)) from error


@dataclass(frozen=True)
class RingRequest:
    """One GEMM + ring reduce-scatter. Constructing it checks it: a wrong value is a :class:`UsageError`.

    `shape` is M, N, K: the output is M x N, K the depth on one GPU; each GPU ends with M / gpus rows. `tile` is the WG
    tile in rows and columns, `wfs` the wavefronts it is cut into by rows, `dma_block` the WF tiles of a DMA block (0:
    all of a WG). `pauses` is the share of idle cycles forced on every interface in percent. `starvation_limit` is in
    cycles, 0 for none. `settings` are configuration fields that differ from the preset. With `alone` the GEMM is first
    run by itself, which the figures of overlap need. With `overflow` the run is wrong unless the Tracker fills up and
    evicts. `inputs` replaces the random matrices: bit patterns of shape
    (gpus, elements), of which `shape` then describes one GPU's, and K is 0. `waves` is the file for an FST.
    """

    gpus: int = 4
    shape: tuple[int, int, int] = (512, 256, 64)
    name: str = ""
    preset: str = "paper"
    policy: str = "mca"
    threshold: str = "auto"
    dtype: str = "fp16"
    op: str = "add"
    tile: tuple[int, int] = (128, 128)
    wfs: int = 8
    dma_block: int = 0
    direction: str = "cw"
    initial: str = "first-touch"
    pauses: int = 0
    schedule: str = "staggered"
    seed: int = 1
    starvation_limit: int = 2000
    alone: bool = True
    overflow: bool = False
    bug: str = ""
    waves: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: np.ndarray | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _choice("preset", self.preset, tuple(PRESETS))
        _choice("policy", self.policy, POLICIES)
        _choice("threshold", self.threshold, THRESHOLDS)
        _choice("dtype", self.dtype, DTYPES)
        _choice("op", self.op, OPERATIONS)
        _choice("direction", self.direction, tuple(DIRECTIONS))
        _choice("initial", self.initial, INITIALS)
        _choice("schedule", self.schedule, SCHEDULES)
        if self.bug:
            _choice("bug", self.bug, BUGS)
        _range("gpus", self.gpus, 2, 32)
        for name, value, low in zip("MNK", self.shape, (1, 1, 0), strict=True):
            _range(f"shape {name}", value, low, 1 << 20)
        if self.shape[0] % self.gpus:
            raise UsageError(f"shape M must be a multiple of gpus ({self.gpus}), got {self.shape[0]}")
        _range("wfs", self.wfs, 1, 8)
        _range("dma-block", self.dma_block, 0, 8)
        if self.dma_block > self.wfs:
            raise UsageError(f"dma-block must be at most wfs ({self.wfs}), got {self.dma_block}")
        _range("pauses", self.pauses, 0, 90)
        _range("seed", self.seed, 0, (1 << 31) - 1)
        _range("starvation-limit", self.starvation_limit, 0, 65535)
        if self.inputs is not None and self.inputs.shape != (self.gpus, self.shape[0] * self.shape[1]):
            raise UsageError(f"inputs must have shape {(self.gpus, self.shape[0] * self.shape[1])}")
        self.configuration()
        tiling = self.tiling()
        if tiling.workgroups * self.gpus > 1 << 16:
            raise UsageError(f"shape must give at most 65536 WG tiles, this one gives {tiling.workgroups * self.gpus}")

    def configuration(self) -> Configuration:
        """The hardware of this run."""
        built = {WRONG_ORDER: ""} | dict.fromkeys(SWITCHED_BUGS, CHOSEN_BUG)
        return configuration(self.preset, self.settings, seeded_bug=built.get(self.bug, self.bug), gpus=self.gpus)

    def identity(self) -> dict[str, Any]:
        """What a :class:`sim.experiments.results.ScenarioResult` says of the request itself."""
        return {
            "name": self.name or f"ring-{self.gpus}",
            **{item: getattr(self, item) for item in ("gpus", "shape", "dtype", "op", "policy", "threshold", "preset")},
        }

    def tiling(self) -> Tiling:
        """How one chunk is cut into tiles."""
        try:
            return Tiling(
                rows=self.shape[0] // self.gpus,
                columns=self.shape[1],
                tile_rows=self.tile[0],
                tile_columns=self.tile[1],
                wfs=self.wfs,
                dtype_bytes=ELEMENT_BYTES[self.dtype],
            )
        except DriverError as error:
            raise UsageError(str(error)) from error


def reduce_request(x: np.ndarray, dtype: str, **options: Any) -> RingRequest:
    """The request that reduces bit patterns `x` of shape (N, elements): each chunk becomes rows of at most 1024
    elements, filled up with zeros, whose result :func:`chunk_elements` leaves away."""
    _choice("the number of GPUs", len(x), RANKS)
    gpus, elements = x.shape
    chunk = elements // gpus
    columns = min(chunk, 1024)
    rows = -(-chunk // columns)
    padded = np.zeros((gpus, gpus, rows * columns), x.dtype)
    padded[:, :, :chunk] = x.reshape(gpus, gpus, chunk)
    return RingRequest(
        gpus=gpus,
        shape=(gpus * rows, columns, 0),
        dtype=dtype,
        tile=(16, 128),
        alone=False,
        inputs=padded.reshape(gpus, -1),
        **options,
    )


def chunk_elements(reduced: np.ndarray, elements: int) -> np.ndarray:
    """The first `elements` of each rank's chunk."""
    return np.ascontiguousarray(reduced.reshape(len(reduced), -1)[:, :elements])
