"""FLUX beside this hardware: GPT-3's all-gather into a GEMM and its GEMM into a reduce-scatter, TP 8.

Source of what is published: Chang et al., "FLUX: Fast Software-based Communication Overlap On GPUs Through Kernel
Fusion" (2024): overlap efficiency, 1 - ECT / ECT of the pair in turn, where ECT is what a way takes beyond the GEMM
that is not split. Its means are over both operations and m = 1024 to 8192.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from sim.experiments.catalogue import collective
from sim.experiments.outcomes import Outcome
from sim.experiments.spec import Spec
from sim.report import metrics
from sim.workloads.machines import machine as known_machine
from sim.workloads.machines import recorded_overlap

GPUS = 8
WIRING = "ideal-switch"
"""Each GPU has the bandwidth of its links for whichever peers it sends to."""
POLICY = "round-robin"
ROWS = (64, 512, 1024, 2048, 4096, 8192)
"""Tokens; the first two of decoding."""
LONG_ROWS = ROWS[2:]
HIDDEN, WIDE = 12288, 49152 // GPUS
"""GPT-3's width, and a GPU's share of the wide side of its MLP."""
SHAPES = {"ag": (WIDE, HIDDEN), "rs": (HIDDEN, WIDE)}
"""Columns and depth of a GPU's GEMM after an all-gather and before a reduce-scatter."""
FEWEST_ROWS = 1024
"""Of a chunk in which a GEMM goes from column to column: eight tile rows."""
COMMUNICATION_UNITS = 16
"""Compute units of a communication kernel; more do not make a link faster."""


@dataclass(frozen=True)
class Published:
    """E_overlap of FLUX and of TransformerEngine, in percent: least, greatest, mean; of decode sizes the least and the
    greatest."""

    least: int
    greatest: int
    mean: int
    decode: tuple[int, int]
    transformer_engine: int


PUBLISHED = {
    "a100-80-pcie": Published(41, 57, 40, (-2, 41), -67),
    "a100-80": Published(36, 96, 63, (14, 88), -61),
    "h800": Published(37, 93, 72, (-165, -82), 20),
}
"""By machine. That the first mean is below its range is how it is stated."""
WAYS = {"ag": "ag", "ag-slices": "ag", "rs-reduce": "rs", "rs-write": "rs"}
"""All-gather into GEMM, chunk after chunk, or of all chunks at a time in slices of the depth; the epilogues "reduce",
every store an addition in its owner's memory, and "write", every store into a place of its own there, and a local sum.
With the operation that each is."""
PROGRAMS = {
    "ag": "ring-all-gather-gemm",
    "ag-slices": "direct-all-gather-gemm",
    "rs-reduce": "direct-reduce-scatter",
    "rs-write": "all-to-all-reduce-scatter",
}
TILES = {
    ("ag", 64): (8, 512),
    ("rs", 64): (8, 1024),
    **dict.fromkeys(product(("ag", "rs"), (512,)), (64, 256)),
    ("ag-slices", 512): (64, 512),
    **dict.fromkeys(product(("rs",), (1024, 2048)), (128, 128)),
}
"""That are not the machine's, as FLUX chooses them by trial. Of decode sizes, where a chunk has fewer rows than such a
tile: a chunk's rows, and with 64 rows, or in slices, columns by which all workgroups run at a time and read the weights
once. Before a reduce-scatter of few rows: half the columns, since the stores of the last workgroups have no GEMM beside
them."""
TILES_OF_ONE = {("h800", "rs-reduce", 512): (16, 512)}
"""The same, of one machine alone."""
SLICES = {512: 16, 1024: 32, 2048: 16, 4096: 16, 8192: 8}
"""In which A arrives: the more, the earlier workgroups begin. Not of 64 tokens, of which a workgroup's part of a row of
A has fewer sectors than there are steps."""
LATENCIES_NS = (250, 1000, 2000)
"""Of a link, beside the 500 ns that are used everywhere, at :data:`NAIVE`."""
FEWEST = ROWS[0]
"""Tokens of which even a GEMM alone is best cut as if it were split: more workgroups read its weights."""
COARSE = ("h800", 4096)
NAIVE = ("h800", 1024)
"""Where chunks as communication tiles, and the order in which all ranks begin with the same chunk and other latencies,
are tried."""


def _tile_beside(way: str, machine: str, rows: int) -> tuple[int, int] | None:
    """Tile of a GEMM beside its communication, where that is not the machine's."""
    return TILES_OF_ONE.get((machine, way, rows)) or TILES.get((way, rows)) or TILES.get((WAYS[way], rows))


def _tiled(tile: tuple[int, int] | None) -> dict[str, Any]:
    """A `tile`, if it is not the usual one, and its wavefronts; a slice has an eighth of the rows."""
    return {"tile": tile, "wfs": min(8, tile[0] // 8)} if tile else {}


def _order(operation: str, rows: int) -> str:
    """In which tiles are taken: from column to column of a chunk that has rows enough, so that few panels are in use at
    a time; else, where chunks arrive one after another, row by row, and before a reduce-scatter of as many chunks as
    have rows enough between them, or of all."""
    if rows // GPUS >= FEWEST_ROWS:
        return "columns"
    if operation == "ag":
        return "rows"
    return "banded" if rows // GPUS >= FEWEST_ROWS // 2 else "across"


def _shape(operation: str, rows: int) -> tuple[int, int, int]:
    return (rows, *SHAPES[operation])


def alone(operation: str, machine: str, rows: int, tile: tuple[int, int] | None = None) -> Spec:
    """The GEMM that is not split, in the order that reads least, with the usual tile or the one given."""
    few = rows == FEWEST
    return collective(
        "gemm-alone",
        GPUS,
        POLICY,
        wiring=WIRING,
        choices={"chunks": GPUS if few else max(1, rows // FEWEST_ROWS)},
        machine=machine,
        shape=_shape(operation, rows),
        mode="mirrored",
        tile_order="across" if few else "columns",
        name="/".join(["flux", machine, operation, f"m{rows}", "gemm", *(["{}x{}".format(*tile)] if tile else [])]),
        **_tiled(TILES[operation, rows] if few else tile),
    )


def alones(operation: str, machine: str, rows: int) -> list[Spec]:
    """The GEMM that is not split with every tile that it has beside its communication, and the machine's; the fastest
    counts."""
    if rows == FEWEST:
        return [alone(operation, machine, rows)]
    tiles = (_tile_beside(way, machine, rows) for way, its in WAYS.items() if its == operation)
    return [alone(operation, machine, rows, tile) for tile in dict.fromkeys((None, *tiles))]


def communication(operation: str, machine: str, rows: int) -> Spec:
    """The communication of the pair in turn: a kernel that copies to all peers; for a reduce-scatter another adds."""
    name = "all-to-all" if operation == "ag" else "all-to-all-reduce-scatter"
    return collective(
        name,
        GPUS,
        POLICY,
        wiring=WIRING,
        choices={"copied": True, "units": COMMUNICATION_UNITS},
        machine=machine,
        shape=(rows, HIDDEN, 0),
        mode="mirrored",
        name=f"flux/{machine}/{operation}/m{rows}/communication",
        **_tiled(TILES.get(("rs", rows))),
    )


def overlapped(
    way: str,
    machine: str,
    rows: int,
    mode: str = "mirrored",
    fine: bool = True,
    order: str = "",
    naive: bool = False,
    latency_ns: int = 0,
) -> Spec:
    """GEMM and communication at once: `way` of :data:`WAYS`. `fine`: communication tiles of a tile row, not of a chunk;
    `order` of tiles, if it is not the best; `naive`: all ranks begin with the same chunk; `latency_ns` of a link, if it
    is not the usual one."""
    operation = WAYS[way]
    choices: dict[str, Any] = {"shifted": False} if naive else {}
    if operation == "ag":
        choices["fine"] = fine
    sliced = way == "ag-slices"
    if sliced:
        choices["slices"] = SLICES[rows]
    details = [*([] if fine else ["coarse"]), *([order] if order else []), *(["naive"] if naive else [])]
    details += [] if mode == "mirrored" else ["nodes"]
    details += [f"latency-{latency_ns}"] if latency_ns else []
    return collective(
        PROGRAMS[way],
        GPUS,
        POLICY,
        wiring=WIRING,
        choices=choices,
        machine=machine,
        shape=_shape(operation, rows),
        mode=mode,
        tile_order=order or ("abreast" if sliced else _order(operation, rows)),
        settings=(("link_latency", known_machine(machine).cycles(latency_ns / 1000)),) if latency_ns else (),
        name="/".join(["flux", machine, way, f"m{rows}", *details]),
        **_tiled(_tile_beside(way, machine, rows)),
    )


@dataclass(frozen=True)
class Point:
    """An overlapped run: `spec`, and the `way`, `machine` and `rows` that it is one of."""

    way: str
    machine: str
    rows: int
    spec: Spec


def overlapped_points() -> Iterator[Point]:
    """All of them: every way, machine and size on a mirrored node; then chunks as communication tiles; then N nodes, as
    they should run, and in the naive order beside the same order shifted; then other latencies of links, beside a pair
    in turn with the usual one."""
    for machine, way, rows in product(PUBLISHED, WAYS, ROWS):
        if way != "ag-slices" or rows in SLICES:
            yield Point(way, machine, rows, overlapped(way, machine, rows))
    yield Point("ag", *COARSE, overlapped("ag", *COARSE, fine=False))
    for way, order in (("ag", ""), ("ag-slices", ""), ("rs-reduce", ""), ("rs-reduce", "columns")):
        yield Point(way, *NAIVE, overlapped(way, *NAIVE, mode="ring", order=order))
    for way, order in (("ag", ""), ("rs-reduce", "columns")):
        yield Point(way, *NAIVE, overlapped(way, *NAIVE, mode="ring", order=order, naive=True))
    for way, latency_ns in product(("ag-slices", "rs-reduce"), LATENCIES_NS):
        yield Point(way, *NAIVE, overlapped(way, *NAIVE, latency_ns=latency_ns))


def points() -> list[Spec]:
    """All that the section needs."""
    pairs = [
        spec
        for pair in ((operation, machine, rows) for machine, operation, rows in product(PUBLISHED, SHAPES, ROWS))
        for spec in (*alones(*pair), communication(*pair))
    ]
    return [*pairs, *(point.spec for point in overlapped_points())]


def records(outcomes: Mapping[Spec, Outcome]) -> list[dict[str, Any]]:
    """A record of each overlapped point that has a result, and whose pair in turn has: `cycles`, of GEMM and
    communication alone too, and `ours`: E_overlap, ECT in cycles, time over the longer of the two (`over_longer`), and
    whether that is the GEMM. Beside it `published`, in the same terms, over all sizes, and `real`: E_overlap of
    PyTorch's fused all-gather and GEMM on four H200, recorded for this project with GPT-3 and m = 2048."""

    def cycles(spec: Spec) -> int | None:
        outcome = outcomes.get(spec)
        return outcome.result["cycles"] if outcome and outcome.result else None

    found = []
    for point in overlapped_points():
        operation = WAYS[point.way]
        taken = cycles(point.spec)
        gemms = [cycles(spec) for spec in alones(operation, point.machine, point.rows)]
        gemm = None if None in gemms else min(one for one in gemms if one is not None)
        sent = cycles(communication(operation, point.machine, point.rows))
        if taken is None or gemm is None or sent is None:
            continue
        stated = PUBLISHED[point.machine]
        decode = point.rows not in LONG_ROWS
        recorded = recorded_overlap("gpt3", point.rows) if operation == "ag" else None
        found.append(
            {
                "point": point.spec.name,
                "machine": point.machine,
                "way": point.way,
                "rows": point.rows,
                "plain": point.spec == overlapped(point.way, point.machine, point.rows),
                "cycles": taken,
                "gemm_cycles": gemm,
                "communication_cycles": sent,
                "ours": {
                    "overlap_efficiency": metrics.overlap_efficiency(taken, gemm + sent, gemm),
                    "ect_cycles": taken - gemm,
                    "over_longer": taken / max(gemm, sent),
                    "gemm_is_longer": gemm >= sent,
                },
                "published": {
                    "least": (stated.decode[0] if decode else stated.least) / 100,
                    "greatest": (stated.decode[1] if decode else stated.greatest) / 100,
                    "mean": None if decode else stated.mean / 100,
                },
                "real": {"overlap_efficiency": recorded},
            }
        )
    return found


def line(record: Mapping[str, Any]) -> str:
    """A record as the command says it."""
    ours, stated = record["ours"], record["published"]
    return (
        f"{record['point']:<40} E_overlap {100 * ours['overlap_efficiency']:6.1f} %, {ours['over_longer']:.3f} of the "
        f"longer; published {100 * stated['least']:.0f} to {100 * stated['greatest']:.0f} %"
    )


def table(found: list[dict[str, Any]]) -> list[list[str]]:
    """The records as a table, the first row its head."""
    rows = [
        [
            *("point", "cycles", "GEMM alone", "communication alone", "E_overlap", "over the longer", "FLUX"),
            "PyTorch, 4 x H200",
        ]
    ]
    for record in found:
        ours, stated, real = record["ours"], record["published"], record["real"]["overlap_efficiency"]
        rows.append(
            [
                record["point"].removeprefix("flux/"),
                *(f"{record[name]:,}" for name in ("cycles", "gemm_cycles", "communication_cycles")),
                f"{100 * ours['overlap_efficiency']:.1f} %",
                f"{ours['over_longer']:.3f}",
                f"{100 * stated['least']:.0f} to {100 * stated['greatest']:.0f} %",
                "" if real is None else f"{100 * real:.0f} %",
            ]
        )
    return rows
