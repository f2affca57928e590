"""Options that belong together, of which the uses of `t3rtl run`, and `t3rtl reduce`, are put together.

A group is a function for its parameters' sake: options, with their defaults. Values are checked by
:class:`sim.experiments.spec.Spec`, not here.
"""

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from sim.cli import options
from sim.experiments import catalogue
from sim.experiments.spec_values import SHARING

OUT = Path("build/run/results.json")


class Outputs(NamedTuple):
    """What a run writes besides its result on the terminal, and on so many `threads` (0: on all cores): `results`;
    `waves`; of its timeline `timeline` and `html`. With `baseline`, what it is compared with is run too."""

    results: Path
    waves: Path | None = None
    timeline: Path | None = None
    html: Path | None = None
    threads: int = 0
    baseline: bool = False


def node(
    preset: options.Preset = "paper",
    policy: options.Policy = "paced",
    threshold: options.Threshold = "auto",
    settings: options.Set = None,
) -> None:
    """The hardware, and how its arbiter chooses."""


def in_detail(direction: options.Direction = "cw", watchdog: options.Watchdog = 0, bug: options.Bug = "") -> None:
    """Of runs with data."""


def stores(
    dtype: options.Dtype = "fp16",
    op: options.Operation = "add",
    wfs: options.Wavefronts = 8,
    dma_block: options.DmaBlock = 0,
    initial: options.Initial = "first-touch",
    stalls: options.Stalls = 0,
    bit_errors: options.BitErrors = 0.0,
    seed: options.Seed = 1,
    starvation_limit: options.StarvationLimit = 2000,
) -> None:
    """What GPUs store that compute, and what happens to it on its way."""


def beside(
    independent: Annotated[
        bool, typer.Option("--independent", help="Run a GEMM that has nothing to do with it beside it.")
    ] = False,
    gemm_shape: Annotated[
        tuple[int, int, int] | None, typer.Option(help="Of that GEMM, if not that of the arrays.", metavar="M N K")
    ] = None,
    sharing: Annotated[
        str,
        typer.Option(help=f"On whose compute units a kernel that copies runs: {', '.join(SHARING)}.", metavar="NAME"),
    ] = "own",
) -> None:
    """A GEMM beside a collective."""


def gpu(
    variant: options.Variant = "t3-paced",
    mode: options.Mode = "mirrored",
    link_bandwidth: options.LinkBandwidth = 75.0,
    compute_units: options.ComputeUnits = 80,
    channels: options.Channels = 1,
    starvation_limit: options.StarvationLimit = 2000,
    watchdog: options.Watchdog = 0,
    tracker_ways: options.TrackerWays = 8,
    prefetch: options.Prefetch = 1,
    reads_under_way: options.ReadsUnderWay = 0,
    communication_units: options.CommunicationUnits = 0,
    communication_bandwidth: options.CommunicationBandwidth = 0.0,
    seed: options.Seed = 1,
    settings: options.Set = None,
) -> None:
    """The GPU at full size, and what runs on it."""


def cut(tile_order: options.TileOrder = "tuned", workgroups_per_unit: options.WorkgroupsPerUnit = 1) -> None:
    """How a GEMM at full size is cut, unless a trace says so."""


def waves(waves: options.Waves = None) -> None:
    """Of small runs."""


def baseline(baseline: options.Baseline = True) -> None:
    """Of runs at full size."""


def results(results: options.Results = OUT) -> None:
    """Of runs whose `--out` is a file of arrays."""


def outputs(
    threads: options.Threads = 0,
    timeline: options.Timeline = None,
    html: options.Html = None,
    results: options.Out = OUT,
) -> None:
    """Of every run."""


def use(*groups: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with the options of `groups` besides its own parameters; of two of the same name the first one counts.
    The function is called with `outputs`, its :class:`Outputs`, and with all other options as fields of a spec."""

    def joined(function: Callable[..., None]) -> Callable[..., None]:
        own = signature(function)
        parameters = {
            item.name: item.replace(kind=Parameter.POSITIONAL_OR_KEYWORD)
            for item in own.parameters.values()
            if item.kind is not Parameter.VAR_KEYWORD and item.name != "outputs"
        }
        for group in groups:
            parameters = {**parameters, **{k: v for k, v in signature(group).parameters.items() if k not in parameters}}

        def command(**fields: Any) -> None:
            given = Outputs(**{name: fields.pop(name) for name in Outputs._fields if name in fields})
            function(outputs=given, settings=catalogue.settings(fields.pop("settings")), **fields)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {item.name: item.annotation for item in parameters.values()}
        command.__signature__ = own.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
        return command

    return joined
