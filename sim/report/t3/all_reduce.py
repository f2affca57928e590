"""Fused all-reduce in Q pieces beside reduce-scatter and then all-gather, and other ways to reduce-scatter.

Table 2's sub-layers end in an all-reduce. T3 fuses its reduce-scatter with the GEMM and gathers with a kernel
afterwards; a chunk that is reduced can go on around the ring at once, by the same tracking and triggering. With Q
pieces of the output, reduced and gathered one after another, the first are gathered under the GEMM.
"""

from itertools import product

from sim.experiments.spec import Spec
from sim.report.t3.record import WORK, Outcomes, Part, Record, cycles_of, named, program, record, result_of, wire_cycles
from sim.workloads.table import MAIN_LAYERS

LAYERS = ("t-nlg/fc-2/tp8", "t-nlg/op/tp8")
"""A GEMM as long as the link's all-reduce, and one of a third."""
PIECES = {8: (1, 2, 4), 16: (1, 2)}
"""By GPUs: as many as a range table has room for."""
SMALL = (2048, 1024, 512)
"""M, N, K of an all-reduce that eight real nodes run."""
WAYS = {
    "one": ("ring-reduce-scatter", "ring", "columns"),
    "both": ("ring-reduce-scatter-both", "ring", "interleaved"),
    "direct": ("direct-reduce-scatter", "mesh", "interleaved"),
}
"""Once round the ring, as T3 does; half of each chunk each way round; each store to its owner on a full mesh (section
7.1). Where several links send, the GEMM takes their chunks in turn, so that all are busy."""


def chunks(way: str, gpus: int) -> float:
    """That the busiest link carries: of a way to reduce-scatter, or of the all-reduce."""
    once = gpus - 1
    return {"one": once, "both": once / 2, "direct": 1, "all-reduce": 2 * once}[way]


def sequential(workload: str) -> Spec:
    """GEMM, reduce-scatter kernel, all-gather kernel, one after the other; the times of the two kernels count."""
    return named(workload, "sequential", f"t3/all-reduce/{workload}/sequential")


def alone(workload: str) -> Spec:
    """The GEMM as the fused runs have it, without communication."""
    return program(
        "gemm-alone",
        workload,
        f"t3/all-reduce/{workload}/gemm",
        choices={"chunks": WORK[workload].tp},
        policy="round-robin",
    )


def fused(workload: str, pieces: int) -> Spec:
    """GEMM and all-reduce as one."""
    return program("ring-all-reduce", workload, f"t3/all-reduce/{workload}/q{pieces}", choices={"pieces": pieces})


def small(mode: str) -> Spec:
    """A small all-reduce in two pieces, on eight real nodes or on one that stands for all."""
    return program(
        "ring-all-reduce",
        LAYERS[0],
        f"t3/all-reduce/small/{mode}",
        choices={"pieces": 2},
        shape=SMALL,
        mode=mode,
    )


def reduced(workload: str, way: str) -> Spec:
    """GEMM and reduce-scatter as one."""
    which, wiring, order = WAYS[way]
    return program(which, workload, f"t3/reduce-scatter/{workload}/{way}", wiring=wiring, tile_order=order)


def points() -> list[Spec]:
    """All that these questions need."""
    return [
        *(make(workload) for workload in MAIN_LAYERS for make in (sequential, alone)),
        *(fused(workload, pieces) for workload in MAIN_LAYERS for pieces in PIECES[WORK[workload].tp]),
        *(reduced(workload, "one") for workload in MAIN_LAYERS),
        *(reduced(*each) for each in product(LAYERS, WAYS) if each[1] != "one"),
        *(small(mode) for mode in ("mirrored", "ring")),
    ]


def records(outcomes: Outcomes) -> list[Record]:
    """Of each fused run `ours`: `speedup` over all three in turn, `over_t3`, over T3's reduce-scatter as one with the
    GEMM and then the all-gather, and `over_bound`, its time over the longer of GEMM and link. The same GEMM is in all
    of them; kernels that communicate are those of Sequential. Of ways to reduce-scatter `speedup` over GEMM and kernel
    in turn, and `over_bound`."""
    found: list[Record] = []
    for workload in MAIN_LAYERS:
        work = WORK[workload]
        turn, gemm = result_of(outcomes, sequential(workload)), cycles_of(outcomes, alone(workload))
        if turn is None or gemm is None:
            continue
        rs, ag = turn["rs_cycles"], turn["ag_cycles"]
        parts = {"gemm_cycles": gemm, "rs_cycles": rs, "ag_cycles": ag}
        bounds = {way: max(gemm, wire_cycles(work, chunks(way, work.tp))) for way in (*WAYS, "all-reduce")}
        scattered = cycles_of(outcomes, reduced(workload, "one"))
        for pieces in PIECES[work.tp]:
            spec = fused(workload, pieces)
            taken = cycles_of(outcomes, spec)
            if taken is not None:
                ours = {"speedup": (gemm + rs + ag) / taken, "over_bound": taken / bounds["all-reduce"]}
                if scattered is not None:
                    ours["over_t3"] = (scattered + ag) / taken
                found.append(record(spec.name, taken, ours, **parts, pieces=pieces))
        for way in WAYS if workload in LAYERS else ("one",):
            spec = reduced(workload, way)
            taken = cycles_of(outcomes, spec)
            if taken is not None:
                ours = {"speedup": (gemm + rs) / taken, "over_bound": taken / bounds[way]}
                found.append(record(spec.name, taken, ours, **parts, way=way))
    one, nodes = (cycles_of(outcomes, small(mode)) for mode in ("mirrored", "ring"))
    if one is not None and nodes is not None:
        found.append(record(small("ring").name, nodes, {"over_mirrored": nodes / one}))
    return found


PART = Part(points, records)
