"""Uncut-GEMMs beside this hardware: C = A B + C in FP32 over 1 to 8 A100, whose memories or a host hold the matrices.

Source of what is published: Anastasiadis et al., "Uncut-GEMMs: Communication-aware matrix multiplication on multi-GPU
nodes" (PARALiA 3, 2024): strong scaling of 8K x 8K x 8K and larger with the data on the GPUs and on the host, and the
time of a batched fetch, in which k ranks get a tile in p pieces one from the other: t (1 + (k - 1) / p), where one
transfer takes t.
"""

from collections.abc import Mapping
from typing import Any

from sim.experiments.catalogue import collective
from sim.experiments.outcomes import Outcome
from sim.experiments.spec import Spec
from sim.workloads.machines import ELEMENT_BYTES, machine

MACHINE = "a100-40"
WIRING = "ring-one-way"
"""The planned routes go from each rank to the next, which on a switch has all its bandwidth for that."""
POLICY = "paced"
SIDE, DEPTH = 8192, 1024
"""Rows and columns of C; an eighth of the depth, which leaves what is fetched in proportion to what is computed."""
TILES = {1: (128, 128), 2: (128, 128), 4: (128, 64), 8: (64, 64)}
"""By GPUs: that which fills the last round of workgroups best, as a planner chooses it; the first is the machine's."""
PUBLISHED = {
    SIDE: {2: 1.9, 4: 3.5, 8: 5.8},
    16384: {2: 2.0, 4: 4.0, 8: 7.4},
    32768: {2: 2.0, 4: 3.9, 8: 7.8},
}
"""Speedup over one GPU, data on the devices, by the side of the matrices. Of a larger one C has that many columns and
fewer rows, as many elements in all: how much of A is fetched for a row of C does not depend on the rows."""
ON_HOST = {SIDE: {2: 1.7, 4: 3.0, 8: 3.6}, 16384: {2: 2.0, 4: 3.5, 8: 5.3}}
"""The same, data on the host."""
HOST_DEPTH = 1024
"""An eighth of 8K, in which the rates of the host's links keep all in proportion. With less the host's one channel,
which takes an update of C in 3.9 cycles, is what eight GPUs wait for."""
HOST_TILES = {1: (128, 128), 2: (64, 64), 4: (32, 64), 8: (32, 64)}
"""As :data:`TILES`, of the data on the host: the more GPUs, the smaller, as workgroups begin when all of their rows and
columns are there."""
FETCHED = (32768, 512)
"""Rows and columns of what is broadcast, 64 MiB."""
CHAINS = ((1, 64), (3, 64), (7, 64), (7, 16), (7, 256))
"""Destinations, and pieces: DMA blocks, each a tile of so many rows."""
NODES = (2048, 1024)
"""Rows and columns of a C that two real nodes compute."""


def _rows(tile: tuple[int, int]) -> int:
    """Wavefronts of a tile, of which each has a row at least in a slice."""
    return min(8, tile[0] // machine(MACHINE).side)


def _of_side(side: int) -> list[str]:
    """What names of larger matrices say."""
    return [] if side == SIDE else [f"{side // 1024}k"]


def alone(side: int = SIDE) -> Spec:
    """All of it on one GPU."""
    return collective(
        "gemm-alone",
        2,
        POLICY,
        wiring=WIRING,
        choices={"chunks": 8},
        machine=MACHINE,
        shape=(SIDE * SIDE // side, side, DEPTH),
        dtype="fp32",
        mode="mirrored",
        tile_order="columns",
        name="/".join(["uncut", *_of_side(side), "gpus-1"]),
    )


def spread(
    gpus: int,
    tile: tuple[int, int] | None = None,
    fine: bool = True,
    mode: str = "mirrored",
    side: int = SIDE,
    shape: tuple[int, int] | None = None,
) -> Spec:
    """C over `gpus` GPUs, each with its columns, which has its rows of A and fetches the others; `tile`, if it is not
    the best; `shape`, if it is not that of matrices of such a `side`."""
    rows, columns = shape or (SIDE * SIDE // side, side)
    chosen = tile or TILES[gpus]
    details = [f"tile-{'x'.join(map(str, tile))}"] if tile else []
    details += [] if fine else ["coarse"]
    details += ["x".join(map(str, shape))] if shape else []
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
        name="/".join(["uncut", *_of_side(side), f"gpus-{gpus}", *details]),
    )


def hosted(gpus: int, straight: bool = False, tile: tuple[int, int] | None = None, side: int = SIDE) -> Spec:
    """C over `gpus` GPUs and a host, on which all matrices lie; `straight`: all GPUs get all of A from there; `tile`,
    if it is not the best. Of a larger `side` C is that of :data:`SIDE`, and the rates of the host's links make up for
    it."""
    chosen = tile or HOST_TILES[gpus]
    details = [f"tile-{'x'.join(map(str, tile))}"] if tile else []
    details += ["straight"] if straight else []
    return collective(
        "hosted-gemm",
        gpus + 1,
        POLICY,
        wiring="hosted-mesh",
        choices={"straight": straight} if straight else {"spread": True},
        machine=MACHINE,
        host_bandwidth=host_bandwidth(side),
        shape=(SIDE, SIDE // gpus, HOST_DEPTH),
        dtype="fp32",
        tile=chosen,
        wfs=_rows(chosen),
        name="/".join(["uncut", "host", *_of_side(side), f"gpus-{gpus}", *details]),
    )


def host_bandwidth(side: int = SIDE) -> tuple[float, float]:
    """GB/s of a link from the host and to it, so that A and B, which have fewer bytes, and C take as much of the time
    of the GEMM as of whole matrices of that `side`."""
    here = machine(MACHINE)
    shorter = (side + here.gemm.fixed_depth) / (HOST_DEPTH + here.gemm.fixed_depth)
    # C is that of SIDE, so A and B have HOST_DEPTH elements where theirs would have SIDE, and C has all of its own.
    share = SIDE / HOST_DEPTH
    return here.host_gb_per_s * shorter / share, here.host_gb_per_s * shorter


def host_times(spec: Spec) -> tuple[float, float, float, float]:
    """Cycles of what a GPU of `spec` must do: its workgroups on its compute units, what it gets of A and of B from the
    host, and what it sends there."""
    here, gpus = machine(MACHINE), spec.gpus - 1
    rows, columns, depth = (side * here.side for side in spec.shape)
    of_a = rows if dict(spec.choices).get("straight") else rows / gpus
    away, back = spec.host_bandwidth

    def cycles(elements: float, rate: float) -> float:
        return elements * ELEMENT_BYTES["fp32"] / rate / here.cycle_ns

    return _busy(spec), cycles(of_a * depth, away), cycles(columns * depth, away), cycles(rows * columns, back)


def longest(spec: Spec) -> float:
    """Cycles of the longest of these: of the compute units, or one way of a link."""
    compute, of_a, of_b, back = host_times(spec)
    return max(compute, of_a + of_b, back)


def bound(spec: Spec) -> float:
    """Cycles below which no order of transfers comes, when each element of C is computed at once: of the work no more
    can be done at any time than the share of rows of A times that of columns of B that can have come. These shares are
    best when as many bytes of both have come, as long as there are some of both."""
    compute, of_a, of_b, back = host_times(spec)
    fewer, more = sorted((of_a, of_b))
    waits = [of_a + of_b - compute, 2 * fewer - compute * fewer / more]
    # While both come, the share at time t is t^2 / (4 of_a of_b); compute units have waited for the longest then.
    waits += [of_a * of_b / compute] if of_a * of_b / compute <= fewer else []
    return max(compute + max(waits), back)


def on_host() -> list[tuple[Spec, int]]:
    """Those whose data lies on the host, and the sides of the matrices: as planned, of every side; with larger tiles;
    and the simpler way."""
    planned = [(hosted(gpus, side=side), side) for side, stated in ON_HOST.items() for gpus in (1, *stated)]
    others = [hosted(8, tile=TILES[8]), *(hosted(gpus, straight=True) for gpus in ON_HOST[SIDE])]
    return [*planned, *((spec, SIDE) for spec in others)]


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


def scaled() -> list[tuple[Spec, int]]:
    """Those that are compared with one GPU, and the sides of the matrices: as planned, of every side; with the
    machine's tile; and with gates of whole chunks."""
    plain = [gpus for gpus in PUBLISHED[SIDE] if TILES[gpus] != TILES[1]]
    others = [*(spread(gpus, TILES[1]) for gpus in plain), spread(8, fine=False)]
    planned = [(spread(gpus, side=side), side) for side, stated in PUBLISHED.items() for gpus in stated]
    return [*planned, *((spec, SIDE) for spec in others)]


def nodes() -> tuple[Spec, Spec]:
    """A small C on two real nodes, and on one that stands for both."""
    return spread(2, mode="ring", shape=NODES), spread(2, shape=NODES)


def points() -> list[Spec]:
    """All that the section needs."""
    spreads, ones = [spec for spec, _ in scaled()], [alone(side) for side in PUBLISHED]
    on_hosts = [spec for spec, _ in on_host()]
    return [*(chain(*pair) for pair in CHAINS), *nodes(), *reversed(spreads), *ones, *reversed(on_hosts)]


def _busy(spec: Spec) -> float:
    """Cycles of all workgroups of `spec`, over the compute units of a GPU."""
    here = machine(MACHINE)
    (rows, columns, depth), (high, wide) = spec.shape, spec.tile
    side = here.side
    workgroups = (rows // high) * (columns // wide)
    return workgroups * here.cycles(here.workgroup_us(high * side, wide * side, depth * side)) / here.compute_units


def records(outcomes: Mapping[Spec, Outcome]) -> list[dict[str, Any]]:
    """A record of each point that has a result and what it is compared with. Of C over several GPUs `ours`: `speedup`
    over one GPU, and `idle`, the share of all compute units' time in which they have no workgroup; with the data on the
    host also the time `over_bound` (:func:`bound`) and `over_longest` (:func:`longest`). Of a fetch `ours`:
    `over_one`, its time over that of one destination with as many pieces, of one with 64 where there is no other, and
    `over_formula`, over 1 + (k - 1) / p times that. Of the real nodes `over_mirrored`. `published`: the same speedup,
    the formula. `real`: nothing was recorded."""

    def cycles(spec: Spec) -> int | None:
        outcome = outcomes.get(spec)
        return outcome.result["cycles"] if outcome and outcome.result else None

    found: list[dict[str, Any]] = []

    def add(spec: Spec, ours: Mapping[str, float], published: Mapping[str, float]) -> None:
        found.append({"point": spec.name, "cycles": cycles(spec), "ours": ours, "published": published, "real": {}})

    for spec, side in scaled():
        taken, one = cycles(spec), cycles(alone(side))
        if taken is not None and one is not None:
            ours = {"speedup": one / taken, "idle": 1 - _busy(spec) / taken}
            add(spec, ours, {"speedup": PUBLISHED[side][spec.gpus]})
    for spec, side in on_host():
        taken, one, gpus = cycles(spec), cycles(hosted(1, side=side)), spec.gpus - 1
        if taken is None or one is None:
            continue
        speedup = {"speedup": one / taken} if gpus > 1 else {}
        stated = speedup and not dict(spec.choices).get("straight")
        published = {"speedup": ON_HOST[side][gpus]} if stated else {}
        over = {"over_bound": taken / bound(spec), "over_longest": taken / longest(spec)}
        add(spec, {**speedup, "idle": 1 - _busy(spec) / taken, **over}, published)
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
    rows = [
        ["point", "cycles", "speedup or times one fetch", "published", "idle", "over the bound of the host's links"]
    ]
    for record in found:
        ours, stated = record["ours"], record["published"]
        if "over_mirrored" in ours:
            continue
        name = next((name for name in ("speedup", "over_one") if name in ours), None)
        rows.append(
            [
                record["point"].removeprefix("uncut/"),
                f"{record['cycles']:,}",
                f"{ours[name]:.3f}" if name else "",
                f"{stated[name]:.3f}" if name in stated else "",
                f"{100 * ours['idle']:.1f} %" if "idle" in ours else "",
                f"{ours['over_bound']:.3f}" if "over_bound" in ours else "",
            ]
        )
    return rows
