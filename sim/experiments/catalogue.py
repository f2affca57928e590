"""What names an experiment for people: a shape, a sub-layer of Table 2, a recorded GEMM, a user's arrays. Each becomes
a :class:`sim.experiments.spec.Spec`."""

from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from sim.collectives.check import check_links
from sim.collectives.known import PROGRAMS
from sim.collectives.program import ProgramError
from sim.errors import UsageError
from sim.experiments.hardware import parse_settings
from sim.experiments.job import program_of
from sim.experiments.spec import Spec
from sim.experiments.spec_values import KERNELS, PROGRAM, TOPOLOGIES, TRACE
from sim.experiments.tensors import load_tensors
from sim.experiments.user_arrays import RANKS, load_inputs, padding
from sim.experiments.variants import VARIANTS, Variant, generated
from sim.topologies.known import topology
from sim.workloads.machines import machine
from sim.workloads.recorded_trace import H200_TRACES, shipped_traces
from sim.workloads.sublayer import SubLayer
from sim.workloads.table import WORKLOADS

SET_BY_OPTION = ("channels", "link_bandwidth", "tracker_ways")
"""Configuration fields that are fields of a full-size spec."""


def shape(policy: str = "mca", threshold: str = "auto", **fields: Any) -> Spec:
    """Real matrices of any shape through the array generator; `fields` of the spec."""
    return Spec(variant=generated(policy, threshold), **fields)


def arrays(path: Path, dtype: str, policy: str = "mca", threshold: str = "auto", **fields: Any) -> Spec:
    """The reduction of array `x` of npz file `path`, of shape (N, elements), after :func:`load_inputs` has accepted
    it."""
    gpus, elements = load_inputs(path, dtype).patterns.shape
    if gpus not in RANKS:
        raise UsageError(f"the number of GPUs must be one of {', '.join(map(str, RANKS))}; got {gpus}")
    layout = padding(gpus, elements)
    return shape(
        policy,
        threshold,
        gpus=gpus,
        shape=(gpus * layout.rows, layout.columns, 0),
        dtype=dtype,
        tile=(16, 128),
        alone=False,
        inputs=str(path),
        **fields,
    )


def collective(
    which: str,
    gpus: int,
    policy: str = "mca",
    threshold: str = "auto",
    wiring: str = TOPOLOGIES[0],
    choices: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Spec:
    """Collective `which` as a program, on topology `wiring`; `choices` are options of the program, other `fields` of
    the spec. Of a `machine` shape and tile (that of the machine, if there is none) are those of the whole GPU. What
    cannot be simulated is refused, with what can be."""
    if fields.get("machine"):
        sides = {"shape": fields.get("shape", Spec.shape), "gemm_shape": fields.get("gemm_shape", ())}
        fields |= _slice(fields["machine"], sides, fields.get("tile"))
    if fields.get("trace"):
        trace_file(fields["trace"])
    spec = Spec(
        collective=which,
        topology=wiring,
        gpus=gpus,
        compute=PROGRAM,
        variant=generated(policy, threshold),
        choices=tuple((choices or {}).items()),
        **{"name": f"{which}-gpus-{gpus}", **fields},
    )
    joined, program = topology(wiring, gpus), program_of(spec)
    try:
        check_links(program, joined)
    except ProgramError as error:
        raise UsageError(f"{error}; the {wiring} serves {', '.join(_served(wiring, gpus))}") from error
    return spec


def _slice(name: str, shapes: Mapping[str, tuple[int, ...]], tile: tuple[int, ...] | None) -> dict[str, Any]:
    """Shapes and tile in the slice of machine `name`."""
    side = machine(name).side
    sides = {**shapes, "tile": tile or machine(name).tile}
    for field, values in sides.items():
        if any(value % side for value in values):
            raise UsageError(
                f"{field.replace('_', '-')} must be multiples of {side}, the sides of which a slice of {name} has one, "
                f"got {values}"
            )
    return {field: tuple(value // side for value in values) for field, values in sides.items()}


def _served(wiring: str, gpus: int) -> list[str]:
    """The collectives for which a topology has the links."""
    answer = []
    for name, known in PROGRAMS.items():
        with suppress(ProgramError):
            check_links(known.make(gpus), topology(wiring, gpus))
            answer.append(name)
    return answer


def tensors(path: Path, dtype: str, call: str, wiring: str = TOPOLOGIES[0], op: str = "add", **fields: Any) -> Spec:
    """Call `call` of :data:`sim.experiments.tensors.CALLS` on array `x` of npz file `path`, after :func:`load_tensors`
    has accepted it."""
    given = load_tensors(path, dtype, call)
    if not given.call.reduces and op != "add":
        raise UsageError(f"{call} does not reduce, so it has no choice of op")
    return collective(
        given.call.program,
        given.gpus,
        wiring=wiring,
        shape=(given.gpus * given.rows, given.columns, 0),
        dtype=dtype,
        op=op,
        tile=(16, 128),
        inputs=str(path),
        **fields,
    )


def layer(name: str, variant: str | Variant = "t3-mca", **fields: Any) -> Spec:
    """Sub-layer or recorded GEMM `name`, as `t3rtl list` shows them, at full size."""
    if name in recorded():
        known = recorded()[name]
        return own(known["shape"], known["gpus"], variant, name=name, trace=known["trace"], **fields)
    work = next((work for work in WORKLOADS if work.name == name), None)
    if work is None:
        names = ", ".join(work.name for work in WORKLOADS)
        raise UsageError(f"workload must be one of {names}; got {name!r}")
    return own((work.m, work.n, work.k), work.tp, variant, name=name, **fields)


def own(shape: tuple[int, int, int], tp: int, variant: str | Variant = "t3-mca", name: str = "", **fields: Any) -> Spec:
    """A GEMM of any shape at full size on `tp` GPUs, mirrored unless `fields` say otherwise; with field `trace` as
    recorded."""
    if isinstance(variant, str):
        if variant not in VARIANTS:
            raise UsageError(f"variant must be one of {', '.join(VARIANTS)}; got {variant!r}")
        variant = VARIANTS[variant]
    for field, _ in fields.get("settings", ()):
        if field in SET_BY_OPTION:
            raise UsageError(f"{field} is no setting of a full-size run: it is --{field.replace('_', '-')}")
    trace = fields.get("trace", "")
    spec = Spec(
        name=name or trace.rpartition(":")[2] or "x".join(map(str, (*shape, tp))),
        gpus=tp,
        shape=shape,
        variant=variant,
        compute=TRACE if trace else KERNELS,
        **{"mode": "mirrored", **fields},
    )
    # A shape that cannot be cut is refused now, and so is what no node can be.
    assert SubLayer(*spec.shape, spec.gpus, spec.gpu.channels).tiling
    assert spec.hardware
    return spec


def settings(texts: list[str] | None) -> tuple[tuple[str, Any], ...]:
    """`FIELD=VALUE` texts as the settings of a spec."""
    return tuple(parse_settings(texts or []).items())


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """The GEMMs recorded on an H200 that come with the project: name -> `trace`, `shape` and `gpus` of a spec."""
    return {
        f"h200/{key}": {"trace": f"{H200_TRACES}:{key}", "shape": (m, n, k), "gpus": tp}
        for key, (m, n, k, tp) in shipped_traces().items()
    }


def matching(patterns: list[str]) -> list[str]:
    """Names of Table 2's sub-layers and of recorded GEMMs that match the shell-like `patterns`, in the order given."""
    chosen: list[str] = []
    for pattern in patterns:
        names = (*(work.name for work in WORKLOADS), *recorded())
        found = [name for name in names if fnmatchcase(name, pattern.lower())]
        if not found:
            raise UsageError(
                f"workload {pattern!r} matches none of those `t3rtl list` shows, nor a recorded one (h200/*)"
            )
        chosen += found
    return list(dict.fromkeys(chosen))


def trace_file(trace: str) -> tuple[Path, str]:
    """File, and key in it, of the trace FILE.npz:KEY or FILE.npz. Raises :class:`UsageError` without such a file."""
    path, _, key = trace.partition(".npz:")
    file = Path(f"{path}.npz" if key else path)
    if not file.is_file():
        raise UsageError(f"trace {file} does not exist or is not a file")
    return file, key
