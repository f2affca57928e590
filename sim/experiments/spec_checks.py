"""Which specs there are: each field by itself, and those that go with others."""

from dataclasses import fields
from typing import TYPE_CHECKING

from hw.abort import WATCHDOG_BITS
from hw.config import PRESETS
from sim.collectives.known import PROGRAMS
from sim.errors import UsageError
from sim.experiments.hardware import EARLY_GATE, WRONG_ORDER
from sim.experiments.spec_values import (
    ARRAY,
    ARRAY_COLLECTIVES,
    ARRAY_FIELDS,
    COMPUTE_MODELS,
    DIRECTIONS,
    DTYPES,
    HOSTED,
    INITIALS,
    LARGEST_SIDE,
    LEAST_OF_A_UNIT,
    MACHINE,
    MODES,
    MOST_BIT_ERRORS,
    MOST_LATE_CYCLES,
    MOST_OF_A_UNIT,
    MOST_PER_UNIT,
    MOST_PREFETCHED,
    MOST_READS,
    OPERATIONS,
    PRESET_OF,
    PROGRAM,
    PROGRAM_FIELDS,
    SCHEDULES,
    SHARING,
    SWITCH,
    TILE_ORDERS,
    TOPOLOGIES,
    TRACE,
)
from sim.experiments.variants import GEMM, POLICIES, THRESHOLDS, VARIANTS, generated
from sim.models import ONE_MODEL_CHANNELS
from sim.models.plan_layout import MAX_SLOTS, Kernel
from sim.models.seeded_bugs import SEEDED_BUGS
from sim.models.switch_parameters import MOST_PORTS
from sim.workloads.machines import machine
from sim.workloads.program_plans import TILE_ORDERS as PROGRAM_ORDERS

if TYPE_CHECKING:
    from sim.experiments.spec import Spec


def _choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed or isinstance(value, bool):
        raise UsageError(f"{name.replace('_', '-')} must be one of {', '.join(map(str, allowed))}; got {value!r}")


def _range(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError(f"{name.replace('_', '-')} must be a whole number from {low} to {high}, got {value!r}")


def _default(spec: "Spec", name: str) -> object:
    return next(item.default for item in fields(spec) if item.name == name)


def check(spec: "Spec") -> None:
    """Raise :class:`sim.errors.UsageError` where `spec` is none; what it leaves open is filled in."""
    for name in ("shape", "tile", "gemm_shape", "host_bandwidth"):
        object.__setattr__(spec, name, tuple(getattr(spec, name)))
    for name in ("settings", "choices"):
        object.__setattr__(spec, name, tuple(sorted(dict(getattr(spec, name)).items())))
    for name, allowed in {
        "collective": tuple(PROGRAMS),
        "topology": TOPOLOGIES,
        "compute": COMPUTE_MODELS,
        "mode": MODES,
    }.items():
        _choice(name, getattr(spec, name), allowed)
    _choice("policy", spec.variant.policy, tuple(POLICIES))
    _choice("threshold", spec.variant.threshold, tuple(THRESHOLDS))
    if spec.variant.policy != "mca" and spec.variant.threshold != "auto":
        raise UsageError(
            f"threshold has no effect here, it is of policy mca only; got {spec.variant.threshold} with "
            f"{spec.variant.policy}"
        )
    _range("starvation-limit", spec.starvation_limit, 0, 65535)
    _range("watchdog", spec.watchdog, 0, (1 << WATCHDOG_BITS) - 1)
    _range("seed", spec.seed, 0, (1 << 31) - 1)
    if len(spec.shape) != 3:
        raise UsageError(f"shape must be M, N and K, got {spec.shape}")
    if spec.compute == ARRAY:
        _check_array(spec)
    elif spec.compute == PROGRAM:
        _check_program(spec)
    else:
        _check_kernels(spec)


def _check_array(spec: "Spec") -> None:
    _choice("topology", spec.topology, TOPOLOGIES[:1])
    _choice("collective", spec.collective, ARRAY_COLLECTIVES)
    for name in ("choices", "independent", "machine", "gemm_shape", "host_bandwidth"):
        if getattr(spec, name):
            raise UsageError(f"{name.replace('_', '-')} is of compute model program only, not of array")
    _choice("sharing", spec.sharing, ("own",))
    if spec.collective != ARRAY_COLLECTIVES[0]:
        for name in ("direction", "bug", "inputs"):
            if getattr(spec, name) != _default(spec, name):
                raise UsageError(f"{name} is of collective {ARRAY_COLLECTIVES[0]} only, not of {spec.collective}")
    _check_stores(spec, (*SEEDED_BUGS, WRONG_ORDER))
    if spec.shape[0] % spec.gpus:
        raise UsageError(f"shape M must be a multiple of gpus ({spec.gpus}), got {spec.shape[0]}")
    tiling = spec.tiling()
    if tiling.workgroups * spec.gpus > 1 << 16:
        raise UsageError(f"shape must give at most 65536 WG tiles, this one gives {tiling.workgroups * spec.gpus}")


def _check_program(spec: "Spec") -> None:
    for name in ("overflow", "schedule"):
        if getattr(spec, name) != _default(spec, name):
            raise UsageError(f"{name} is of compute model array only, not of program")
    if spec.tile_order is None:
        object.__setattr__(spec, "tile_order", PROGRAM_ORDERS[0])
    _choice("tile-order", spec.tile_order, PROGRAM_ORDERS)
    if spec.machine:
        _check_machine(spec)
    if spec.trace:
        _check_trace(spec)
    _check_independent(spec)
    _check_stores(spec, (EARLY_GATE,))
    if spec.mirrored and spec.inputs:
        raise UsageError("mode must be ring with inputs: those of a mirrored node are the same on all ranks")
    if spec.topology == SWITCH:
        _range(f"gpus on topology {SWITCH}", spec.gpus, 2, MOST_PORTS)
    if spec.mirrored and spec.topology == SWITCH:
        raise UsageError(f"mode must be ring on topology {SWITCH}: its outputs are shared by different ranks")
    if spec.mirrored and spec.topology in HOSTED:
        raise UsageError(f"mode must be ring on topology {spec.topology}: the host is not like the other ranks")
    _check_host(spec)
    known = PROGRAMS[spec.collective].options
    for name, default in {"op": "add", "initial": "first-touch", "direction": "cw"}.items():
        option = {"initial": "first_touch"}.get(name, name)
        if option not in known and getattr(spec, name) != default:
            raise UsageError(f"{spec.collective} has no choice of {name}")
    for name, _ in spec.choices:
        if name not in known or name in PROGRAM_FIELDS:
            raise UsageError(f"{spec.collective} has no choice of {name}")


def _check_host(spec: "Spec") -> None:
    given = spec.host_bandwidth
    if not given:
        return
    if spec.topology not in HOSTED:
        raise UsageError(f"host-bandwidth is of topology {' or '.join(HOSTED)} only, not of {spec.topology}")
    numbers = all(isinstance(rate, int | float) and not isinstance(rate, bool) for rate in given)
    if len(given) > 2 or not numbers:
        raise UsageError(f"host-bandwidth must be one or two numbers, got {given}")
    others = machine(spec.machine).link_gb_per_s if spec.machine else spec.hardware.link_bandwidth
    if not all(0 < rate <= others for rate in given):
        raise UsageError(
            f"host-bandwidth must be above 0 and at most that of other links, {others:g} GB/s, got "
            f"{' and '.join(f'{rate:g}' for rate in given)}"
        )
    object.__setattr__(spec, "host_bandwidth", tuple(map(float, given)))


def _check_machine(spec: "Spec") -> None:
    units = machine(spec.machine).compute_units
    if units > MAX_SLOTS:
        raise UsageError(f"machine {spec.machine} has {units} compute units, {MAX_SLOTS} can be simulated")
    if "channels" in dict(spec.settings):
        raise UsageError(f"channels is no setting with machine {spec.machine}: its slice has its own")


def _check_trace(spec: "Spec") -> None:
    if not spec.machine:
        raise UsageError("trace needs a machine here: say, in whose cycles its times are")
    _check_order_of_trace(spec, PROGRAM_ORDERS[0])
    if spec.sharing == "partitioned":
        raise UsageError("sharing must not be partitioned with a trace, whose workgroups ran on all compute units")


def _check_order_of_trace(spec: "Spec", usual: str) -> None:
    if spec.tile_order != usual:
        raise UsageError(f"tile-order is the trace's own with a trace, got {spec.tile_order!r}")


def _check_independent(spec: "Spec") -> None:
    _choice("sharing", spec.sharing, tuple(SHARING))
    if not spec.independent:
        for name, other in {"gemm_shape": spec.gemm_shape, "sharing": spec.sharing != "own"}.items():
            if other:
                raise UsageError(f"{name.replace('_', '-')} is of an independent GEMM, and there is none")
        return
    if spec.sharing == "partitioned" and not dict(spec.choices).get("units"):
        raise UsageError(
            "sharing partitioned has no effect here: it is of a kernel that copies on units, from which the GEMM "
            "keeps away, and none are said"
        )
    if not spec.gemm_shape:
        object.__setattr__(spec, "gemm_shape", spec.shape)
    if len(spec.gemm_shape) != 3:
        raise UsageError(f"gemm-shape must be M, N and K, got {spec.gemm_shape}")
    for name, value, low in zip("MNK", spec.gemm_shape, (1, 1, 0), strict=True):
        _range(f"gemm-shape {name}", value, low, LARGEST_SIDE)
    if spec.gemm_shape[0] % spec.gpus:
        raise UsageError(f"gemm-shape M must be a multiple of gpus ({spec.gpus}), got {spec.gemm_shape[0]}")


def _check_stores(spec: "Spec", bugs: tuple[str, ...]) -> None:
    """What is alike of compute models with data."""
    if not spec.preset:
        object.__setattr__(spec, "preset", "paper")
    _choice("preset", spec.preset, tuple(PRESETS))
    for name in (*MACHINE, "trace"):
        of_programs = spec.compute == PROGRAM and name in ("tile_order", "trace")
        if getattr(spec, name) not in (None, "") and not of_programs:
            raise UsageError(
                f"{name.replace('_', '-')} is of full-size kernels only, not of compute model {spec.compute}"
            )
    for name, allowed in {
        "mode": MODES if spec.compute == PROGRAM else ("ring",),
        "variant": (generated(spec.variant.policy, spec.variant.threshold),),
        "dtype": DTYPES,
        "op": OPERATIONS,
        "direction": tuple(DIRECTIONS),
        "initial": INITIALS,
        "schedule": SCHEDULES,
    }.items():
        _choice(name, getattr(spec, name), allowed)
    if spec.bug:
        _choice("bug", spec.bug, bugs)
    _range("gpus", spec.gpus, 2, 32)
    for name, value, low in zip("MNK", spec.shape, (1, 1, 0), strict=True):
        _range(f"shape {name}", value, low, LARGEST_SIDE)
    _range("wfs", spec.wfs, 1, 8)
    _range("dma-block", spec.dma_block, 0, 8)
    if spec.dma_block > spec.wfs:
        raise UsageError(f"dma-block must be at most wfs ({spec.wfs}), got {spec.dma_block}")
    _range("stalls", spec.stalls, 0, 90)
    if not isinstance(spec.bit_errors, int | float) or not 0 <= spec.bit_errors <= MOST_BIT_ERRORS:
        raise UsageError(f"bit-errors must be from 0 to {MOST_BIT_ERRORS}, got {spec.bit_errors!r}")
    object.__setattr__(spec, "bit_errors", float(spec.bit_errors))
    _range("late-rank", spec.late_rank, 0, spec.gpus - 1)
    _range("late-cycles", spec.late_cycles, 0, MOST_LATE_CYCLES)
    if spec.hardware.channels > ONE_MODEL_CHANNELS and spec.bug in SEEDED_BUGS:
        raise UsageError(
            f"bug {spec.bug} is of at most {ONE_MODEL_CHANNELS} channels, preset {spec.preset} has "
            f"{spec.hardware.channels}: say, for example, --set channels=4 --set lanes=2"
        )


def _check_kernels(spec: "Spec") -> None:
    _choice("topology", spec.topology, TOPOLOGIES[:1])
    _choice("collective", spec.collective, ARRAY_COLLECTIVES[:1])
    for item in fields(spec):
        if item.name in ARRAY_FIELDS and getattr(spec, item.name) != item.default:
            raise UsageError(f"{item.name.replace('_', '-')} is of compute model array only, not of {spec.compute}")
    for name, value in MACHINE.items():
        if getattr(spec, name) is None:
            object.__setattr__(spec, name, value)
    _choice("channels", spec.channels, tuple(PRESET_OF))
    preset = PRESET_OF[spec.gpu.channels]
    if spec.preset not in ("", preset):
        raise UsageError(f"preset follows from channels ({spec.channels}: {preset}), got {spec.preset!r}")
    object.__setattr__(spec, "preset", preset)
    if VARIANTS.get(spec.variant.name) != spec.variant:
        raise UsageError(f"variant must be one of {', '.join(VARIANTS)}; got {spec.variant.name!r}")
    _range("tp", spec.gpus, 2, 32)
    for name, value in zip("MNK", spec.shape, strict=True):
        _range(f"shape {name}", value, 1, LARGEST_SIDE)
    _choice("tracker_ways", spec.tracker_ways, (1, 2, 4, 8, 16))
    _choice("tile_order", spec.tile_order, TILE_ORDERS)
    _range("compute_units", spec.compute_units, 1, 240)
    _range("prefetch", spec.prefetch, 0, MOST_PREFETCHED)
    most = min(MOST_READS, ((1 << Kernel["reads"].width) - 1) // spec.gpu.channels)
    _range(
        "reads-under-way" + (f" on {spec.channels} channels" if most < MOST_READS else ""),
        spec.reads_under_way,
        0,
        most,
    )
    _range("workgroups-per-unit", spec.workgroups_per_unit, 1, MOST_PER_UNIT)
    units = spec.gpu.compute_units
    if units * spec.gpu.workgroups_per_unit > MAX_SLOTS:
        raise UsageError(
            f"workgroups-per-unit must be at most {MAX_SLOTS // units} with {units} compute units, "
            f"got {spec.workgroups_per_unit}"
        )
    _check_communication(spec)
    if not isinstance(spec.link_bandwidth, int | float) or not 1 <= spec.link_bandwidth <= 1024:
        raise UsageError(f"link-bandwidth must be from 1 to 1024 GB/s, got {spec.link_bandwidth!r}")
    object.__setattr__(spec, "link_bandwidth", float(spec.link_bandwidth))
    if bool(spec.trace) != (spec.compute == TRACE):
        raise UsageError("a trace is of compute model trace only, which needs one")
    if spec.trace:
        _check_order_of_trace(spec, "tuned")
    if spec.trace and spec.workgroups_per_unit != 1:
        raise UsageError(f"workgroups-per-unit is the trace's own with a trace, got {spec.workgroups_per_unit}")


def _check_communication(spec: "Spec") -> None:
    _range("communication-units", spec.communication_units, 0, spec.gpu.compute_units)
    low, high = LEAST_OF_A_UNIT, MOST_OF_A_UNIT
    rate = spec.communication_bandwidth
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not (rate == 0 or low <= rate <= high):
        raise UsageError(f"communication-bandwidth must be 0 or from {low} to {high} GB/s, got {rate!r}")
    object.__setattr__(spec, "communication_bandwidth", float(rate))
    for name in ("communication_units", "communication_bandwidth"):
        if getattr(spec, name) and spec.variant.kernels == (GEMM,):
            raise UsageError(
                f"{name.replace('_', '-')} is of kernels that communicate, and variant {spec.variant.name} has none"
            )
