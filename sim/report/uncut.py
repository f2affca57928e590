"""Uncut-GEMMs beside this hardware: C = A B + C in FP32 over 1 to 8 A100, whose memories hold the matrices.

Source of what is published: Anastasiadis et al., "Uncut-GEMMs: Communication-aware matrix multiplication on multi-GPU
nodes" (PARALiA 3, 2024): strong scaling of 8K x 8K x 8K with the data on the GPUs, and the time of a batched fetch, in
which k ranks get a tile in p pieces one from the other: t (1 + (k - 1) / p), where one transfer takes t.
"""

from collections.abc import Mapping
from typing import Any

from sim.experiments.catalogue import collective
from sim.experiments.spec import Spec
from sim.experiments.sweep import Outcome
from sim.workloads.machines import machine

MACHINE = "a100-40"
WIRING = "ring-one-way"
"""The planned routes go from each rank to the next, which on a switch has all its bandwidth for that."""
POLICY = "paced"
SIDE, DEPTH = 8192, 1024
"""Rows and columns of C; an eighth of the depth, which leaves what is fetched in proportion to what is computed."""
TILES = {1: (128, 128), 2: (128, 128), 4: (128, 64), 8: (64, 64)}
"""By GPUs: that which fills the last round of workgroups best, as a planner chooses it; the first is the machine's."""
PUBLISHED = {2: 1.9, 4: 3.5, 8: 5.8}
"""Speedup over one GPU, 8K, data on the devices."""
FETCHED = (32768, 512)
"""Rows and columns of what is broadcast, 64 MiB."""
CHAINS = ((1, 64), (3, 64), (7, 64), (7, 16), (7, 256))
"""Destinations, and pieces: DMA blocks, each a tile of so many rows."""
NODES = (2048, 1024)
"""Rows and columns of a C that two real nodes compute."""


def _rows(tile: tuple[int, int]) -> int:
    """Wavefronts of a tile, of which each has a row at least in a slice."""
    return min(8, tile[0] // machine(MACHINE).side)


def alone() -> Spec:
    """All of it on one GPU."""
    return collective(
        "gemm-alone",
        2,
        POLICY,
        wiring=WIRING,
        choices={"chunks": 8},
        machine=MACHINE,
        shape=(SIDE, SIDE, DEPTH),
        dtype="fp32",
        mode="mirrored",
        tile_order="columns",
        name="uncut/gpus-1",
    )


def spread(
    gpus: int,
    tile: tuple[int, int] | None = None,
    fine: bool = True,
    mode: str = "mirrored",
    shape: tuple[int, int] = (SIDE, SIDE),
) -> Spec:
    """C over `gpus` GPUs, each with its columns, which has its rows of A and fetches the others; `tile`, if it is not
    the best."""
    rows, columns = shape
    chosen = tile or TILES[gpus]
    details = [f"tile-{'x'.join(map(str, tile))}"] if tile else []
    details += [] if fine else ["coarse"]
    details += ["x".join(map(str, shape))] if shape != (SIDE, SIDE) else []
    details += [] if mode == "mirrored" else ["nodes"]
    return collective(
        "fetched-gemm",
        gpus,
        POLICY,
        wiring=WIRING,
        choices={"fine": fine},
        machine=MACHINE,
        shape=(rows, columns // gpus, DEPTH),
        dtype="fp32",
        tile=chosen,
        wfs=_rows(chosen),
        mode=mode,
        tile_order="columns",
        name="/".join(["uncut", f"gpus-{gpus}", *details]),
    )


def chain(destinations: int, pieces: int) -> Spec:
    """A batched fetch."""
    rows, columns = FETCHED
    return collective(
        "broadcast-chain",
        destinations + 1,
        POLICY,
        wiring=WIRING,
        machine=MACHINE,
        shape=(rows, columns, 0),
        tile=(rows // pieces, columns),
        dtype="fp32",
        name=f"uncut/fetch/k{destinations}/p{pieces}",
    )


def scaled() -> list[Spec]:
    """Those that are compared with one GPU: as planned, with the machine's tile, and with gates of whole chunks."""
    plain = [gpus for gpus in PUBLISHED if TILES[gpus] != TILES[1]]
    return [
        *(spread(gpus) for gpus in PUBLISHED),
        *(spread(gpus, TILES[1]) for gpus in plain),
        spread(8, fine=False),
    ]


def nodes() -> tuple[Spec, Spec]:
    """A small C on two real nodes, and on one that stands for both."""
    return spread(2, mode="ring", shape=NODES), spread(2, shape=NODES)


def points() -> list[Spec]:
    """All that the section needs."""
    return [*(chain(*pair) for pair in CHAINS), *nodes(), *reversed(scaled()), alone()]


def _busy(spec: Spec) -> float:
    """Cycles of all workgroups of `spec`, over the compute units of a GPU."""
    here = machine(MACHINE)
    (rows, columns, depth), (high, wide) = spec.shape, spec.tile
    side = here.side
    workgroups = (rows // high) * (columns // wide)
    return workgroups * here.cycles(here.workgroup_us(high * side, wide * side, depth * side)) / here.compute_units


def records(outcomes: Mapping[Spec, Outcome]) -> list[dict[str, Any]]:
    """A record of each point that has a result and what it is compared with. Of C over several GPUs `ours`: `speedup`
    over one GPU, and `idle`, the share of all compute units' time in which they have no workgroup. Of a fetch `ours`:
    `over_one`, its time over that of one destination with as many pieces, of one with 64 where there is no other, and
    `over_formula`, over 1 + (k - 1) / p times that. Of the real nodes `over_mirrored`. `published`: the same speedup,
    the formula. `real`: nothing was recorded."""

    def cycles(spec: Spec) -> int | None:
        outcome = outcomes.get(spec)
        return outcome.result["cycles"] if outcome and outcome.result else None

    found: list[dict[str, Any]] = []

    def add(spec: Spec, ours: Mapping[str, float], published: Mapping[str, float]) -> None:
        found.append({"point": spec.name, "cycles": cycles(spec), "ours": ours, "published": published, "real": {}})

    one = cycles(alone())
    for spec in scaled():
        taken = cycles(spec)
        if taken is not None and one is not None:
            ours = {"speedup": one / taken, "idle": 1 - _busy(spec) / taken}
            add(spec, ours, {"speedup": PUBLISHED[spec.gpus]})
    single = cycles(chain(*CHAINS[0]))
    for destinations, pieces in CHAINS[1:]:
        taken = cycles(chain(destinations, pieces))
        if taken is not None and single is not None:
            formula = 1 + (destinations - 1) / pieces
            over_one = taken / single
            add(
                chain(destinations, pieces),
                {"over_one": over_one, "over_formula": over_one / formula},
                {"over_one": formula},
            )
    both = [cycles(spec) for spec in nodes()]
    if both[0] is not None and both[1] is not None:
        add(nodes()[0], {"over_mirrored": both[0] / both[1]}, {})
    return found


def line(record: Mapping[str, Any]) -> str:
    """A record as the command says it."""
    ours, stated = record["ours"], record["published"]
    said = ", ".join(f"{name} {value:.3f}" for name, value in ours.items())
    beside = ", ".join(f"{name} {value:.3f}" for name, value in stated.items())
    return f"{record['point']:<40} {said}" + (f"; published {beside}" if beside else "")


def table(found: list[dict[str, Any]]) -> list[list[str]]:
    """The records as a table, the first row its head."""
    rows = [["point", "cycles", "speedup or times one fetch", "published", "idle"]]
    for record in found:
        ours, stated = record["ours"], record["published"]
        if "over_mirrored" in ours:
            continue
        (name,) = stated
        rows.append(
            [
                record["point"].removeprefix("uncut/"),
                f"{record['cycles']:,}",
                f"{ours[name]:.3f}",
                f"{stated[name]:.3f}",
                f"{100 * ours['idle']:.1f} %" if "idle" in ours else "",
            ]
        )
    return rows
