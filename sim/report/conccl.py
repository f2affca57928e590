"""ConCCL beside this hardware: a GEMM and an all-gather or all-to-all that have nothing to do with each other, MI300X.

Source of what is published: Agrawal et al., "Optimizing ML Concurrent Computation and Communication with GPU DMA
Engines" (2024): percent of the ideal speedup, which is that of the pair in turn over the longer of the two.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from sim.experiments.catalogue import collective
from sim.experiments.outcomes import Outcome
from sim.experiments.spec import Spec
from sim.report import metrics
from sim.workloads.machines import machine, recorded_concurrency

GPUS = 8
MACHINE = "mi300x"
WIRING = "mesh"
UNITS = 48
"""Compute units of a communication kernel: what copies as fast as seven links carry."""
ROW = 1024
"""Elements of a row of what is sent, which is nothing but bytes."""
TILE = (128, ROW)
BLOCK = 2
"""WF tiles of a DMA block of an all-to-all, of which each goes to one peer: small ones, so that what waits in the
buffers while the GEMM stores is for all peers alike."""
ORDER = "rows"
"""Of the GEMM's tiles: along the rows, so that what lies in one row of DRAM is stored at about the same time."""


@dataclass(frozen=True)
class Gemm:
    """M, N, K of a GEMM of ConCCL's table II, the same as `simulated`, and the `mib` of an all-gather or all-to-all
    beside it, in all: of the sizes it states the one that takes the most nearly the same time."""

    shape: tuple[int, int, int]
    simulated: tuple[int, int, int]
    mib: int
    compute_bound: bool = True

    @property
    def scale(self) -> int:
        """How many times less there is to multiply, and to send."""
        return math.prod(self.shape) // math.prod(self.simulated)

    @property
    def rows(self) -> int:
        """Rows of what is sent, as simulated."""
        return self.mib * 2**20 // 2 // ROW // self.scale


GEMMS = {
    "cb1": Gemm((8192, 8192, 8192), (8192, 8192, 2048), 896),
    "cb2": Gemm((16384, 8192, 16384), (16384, 8192, 1024), 3328),
    "cb3": Gemm((16384, 16384, 8192), (16384, 16384, 512), 3328),
    "cb4": Gemm((18432, 8192, 16384), (18432, 8192, 1024), 3328),
    "cb5": Gemm((106496, 8192, 16384), (13312, 8192, 1024), 27136),
    "mb1": Gemm((8192, 57344, 8192), (8192, 28672, 256), 3328, compute_bound=False),
    "mb2": Gemm((16384, 106496, 8192), (16384, 13312, 256), 27136, compute_bound=False),
}
"""Less depth leaves workgroups and stores as they are, so that stores are a larger part of the traffic: harder than at
full size. cb5 has an eighth of its rows, mb2 an eighth of its columns, and mb1 half: whole they have more workgroups
than a run has room for."""
OPERATIONS = {"ag": "all-gather", "a2a": "all-to-all"}
KERNELS = ("side-by-side", "priority", "partitioned")
"""A kernel of compute units copies: behind the GEMM in the same queue, before it, or on units kept free for it."""
POLICIES = ("round-robin", "compute-first", "mca", "paced")
"""The memory copies what lies in it."""
STRATEGIES = (*KERNELS, *POLICIES)
PUBLISHED = {"side-by-side": 21, "priority": 42, "partitioned": 41, **dict.fromkeys(POLICIES, 66)}
"""Percent of ideal, means over their pairs; DMA engines stand beside the memory that copies. With units kept free for
nothing but the launches of DMA engines they state 72."""
NODES = ("cb1", "ag", "paced")
"""Of which eight real nodes run, with an eighth of the depth and of what is sent."""


def gemm_alone(name: str) -> Spec:
    """The GEMM by itself."""
    return collective(
        "gemm-alone",
        GPUS,
        "round-robin",
        wiring=WIRING,
        choices={"chunks": GPUS},
        machine=MACHINE,
        shape=GEMMS[name].simulated,
        mode="mirrored",
        tile_order=ORDER,
        name=f"conccl/{name}/gemm",
    )


def _program(operation: str, copied: bool) -> tuple[str, dict[str, Any]]:
    """The program that does `operation`, and what is chosen of it."""
    if copied:
        return "all-to-all", {"copied": True, "units": UNITS, "alike": operation == "ag"}
    return ("direct-all-gather", {"lying": True}) if operation == "ag" else ("all-to-all-dma", {})


def _block(operation: str, copied: bool) -> int:
    """WF tiles of a DMA block, 0: all of a tile."""
    return BLOCK if operation == "a2a" and not copied else 0


def alone(name: str, operation: str, copied: bool) -> Spec:
    """The communication by itself, by a kernel that copies or by the memory."""
    which, choices = _program(operation, copied)
    return collective(
        which,
        GPUS,
        "round-robin",
        wiring=WIRING,
        choices=choices,
        machine=MACHINE,
        shape=(GEMMS[name].rows, ROW, 0),
        tile=TILE,
        dma_block=_block(operation, copied),
        tile_order="interleaved",
        mode="mirrored",
        name=f"conccl/{name}/{operation}/{'kernel' if copied else 'memory'}",
    )


def both(name: str, operation: str, strategy: str, mode: str = "mirrored", part: int = 1) -> Spec:
    """The pair at once; `part`: with so many times less depth and less to send."""
    copied = strategy in KERNELS
    which, choices = _program(operation, copied)
    rows, columns, depth = GEMMS[name].simulated
    details = [*(["nodes"] if mode != "mirrored" else []), *([f"part-{part}"] if part > 1 else [])]
    return collective(
        which,
        GPUS,
        "round-robin" if copied else strategy,
        wiring=WIRING,
        choices=choices,
        machine=MACHINE,
        shape=(GEMMS[name].rows // part, ROW, 0),
        tile=TILE,
        dma_block=_block(operation, copied),
        independent=True,
        gemm_shape=(rows, columns, depth // part),
        sharing=strategy if copied else "own",
        mode=mode,
        tile_order=ORDER,
        name="/".join(["conccl", name, operation, strategy, *details]),
    )


def pairs() -> Iterator[tuple[str, str]]:
    """Every GEMM beside either operation."""
    yield from product(GEMMS, OPERATIONS)


PART = 8


def nodes() -> tuple[Spec, Spec]:
    """A small pair on eight real nodes, and on one that stands for all."""
    return both(*NODES, mode="ring", part=PART), both(*NODES, part=PART)


def points() -> list[Spec]:
    """All that the section needs."""
    return [
        *(gemm_alone(name) for name in GEMMS),
        *nodes(),
        *(alone(*pair, copied) for pair in pairs() for copied in (True, False)),
        *(both(*pair, strategy) for pair in pairs() for strategy in STRATEGIES),
    ]


def records(outcomes: Mapping[Spec, Outcome]) -> list[dict[str, Any]]:
    """A record of each strategy of each pair that has a result, and whose GEMM and copying kernel alone have one.
    `ours`: `speedup` over these two in turn, `ideal`, that of the longer of the two, and `percent_of_ideal`; `bound`,
    the longest of GEMM alone, communication alone as this strategy does it, and all DRAM sectors of the pair, one a
    cycle and channel, which are `dram_share` of it; `over_bound`. `published`: ConCCL's mean in percent; `real`: what
    was recorded for this project on four H200, by kernels or by copy engines. Of the pair on eight real nodes, which
    has no GEMM alone, `over_mirrored`: its time over that of one node that stands for all."""

    def result(spec: Spec) -> dict[str, Any] | None:
        outcome = outcomes.get(spec)
        return outcome.result if outcome else None

    found = []
    for name, operation in pairs():
        gemm, kernel = result(gemm_alone(name)), result(alone(name, operation, copied=True))
        if gemm is None or kernel is None:
            continue
        for strategy in STRATEGIES:
            copied = strategy in KERNELS
            taken, sent = result(both(name, operation, strategy)), result(alone(name, operation, copied))
            if taken is None or sent is None:
                continue
            cycles, turn = taken["cycles"], gemm["cycles"] + kernel["cycles"]
            ideal = turn / max(gemm["cycles"], kernel["cycles"])
            sectors = metrics.total_sectors(taken["dram_sectors"]) / machine(MACHINE).slice_channels
            bound = max(gemm["cycles"], sent["cycles"], sectors)
            found.append(
                {
                    "point": both(name, operation, strategy).name,
                    "gemm": name,
                    "operation": operation,
                    "strategy": strategy,
                    "scale": GEMMS[name].scale,
                    "compute_bound": GEMMS[name].compute_bound,
                    "cycles": cycles,
                    "gemm_cycles": gemm["cycles"],
                    "kernel_cycles": kernel["cycles"],
                    "communication_cycles": sent["cycles"],
                    "ours": {
                        "speedup": turn / cycles,
                        "ideal": ideal,
                        "percent_of_ideal": metrics.percent_of_ideal(turn / cycles, ideal),
                        "bound": bound,
                        "over_bound": cycles / bound,
                        "dram_share": sectors / cycles,
                    },
                    "published": {"percent_of_ideal": PUBLISHED[strategy]},
                    "real": {"percent_of_ideal": recorded_concurrency("nccl" if copied else "dma", operation)},
                }
            )
    real, one = (result(spec) for spec in nodes())
    if real is not None and one is not None:
        found.append(
            {
                "point": nodes()[0].name,
                "cycles": real["cycles"],
                "ours": {"over_mirrored": real["cycles"] / one["cycles"]},
                "published": {},
                "real": {},
            }
        )
    return found


def line(record: Mapping[str, Any]) -> str:
    """A record as the command says it."""
    ours, stated = record["ours"], record["published"]
    if "over_mirrored" in ours:
        return f"{record['point']:<40} {ours['over_mirrored']:.4f} of one node that stands for all"
    return (
        f"{record['point']:<40} {ours['percent_of_ideal']:6.1f} % of ideal ({ours['speedup']:.3f} of "
        f"{ours['ideal']:.3f}), {ours['over_bound']:.3f} of the bound; published {stated['percent_of_ideal']} %"
    )


def table(found: list[dict[str, Any]]) -> list[list[str]]:
    """The records as a table, the first row its head."""
    rows = [
        [
            *("point", "cycles", "GEMM alone", "kernel alone", "communication alone", "speedup", "ideal"),
            *("percent of ideal", "over the bound", "DRAM busy", "ConCCL, mean", "4 x H200, mean"),
        ]
    ]
    for record in found:
        ours = record["ours"]
        if "over_mirrored" in ours:
            continue
        rows.append(
            [
                record["point"].removeprefix("conccl/"),
                *(f"{record[name]:,}" for name in ("cycles", "gemm_cycles", "kernel_cycles", "communication_cycles")),
                *(f"{ours[name]:.3f}" for name in ("speedup", "ideal")),
                f"{ours['percent_of_ideal']:.1f} %",
                f"{ours['over_bound']:.3f}",
                f"{100 * ours['dram_share']:.0f} %",
                f"{record['published']['percent_of_ideal']} %",
                f"{record['real']['percent_of_ideal']:.0f} %",
            ]
        )
    return rows
