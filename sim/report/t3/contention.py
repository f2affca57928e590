"""Figure 6: what kernels that communicate leave to a GEMM, and a GEMM to them, when they share compute units.

The paper gives N of 80 compute units to an all-reduce and the others to the GEMM, and has each alone: an all-reduce on
8 takes 41 % longer than on 80, on 16 7 %; a GEMM on 64 21 %. Both at once would then take the longer of the two: 1.18
and 1.49 times as fast as in turn on all units, of 1.67 if neither noticed.
"""

from itertools import product

from sim.experiments.spec import Spec
from sim.report import metrics
from sim.report.t3.record import Outcomes, Part, Record, cycles_of, named, record, result_of

MODELS = ("mega-gpt-2", "t-nlg")
LAYERS = ("op", "fc-2")
"""Of a model, at TP 8: their outputs, and so their all-reduces, are alike, their depths not."""
UNITS = 80
SHARES = (8, 16, 32)
"""Compute units of the all-reduce."""
RATES = (0.0, 7.4)
"""GB/s that a compute unit copies or adds up: what memory and link let it; and so much that an all-reduce on 8 takes
as much longer as the paper has it. What is said of 16 and 32 units is then a result."""
PUBLISHED: dict[int, dict[str, float]] = {
    8: {"all_reduce": 1.41, "speedup": 1.18, "ideal": 1.67},
    16: {"all_reduce": 1.07, "gemm": 1.21, "speedup": 1.49, "ideal": 1.67},
    32: {},
}


def _rate(rate: float) -> str:
    return f"{rate:g}-gb-per-s" if rate else "unlimited"


def place(rate: float, share: int) -> str:
    """Where the records stand of an all-reduce on so many units, each of which copies at `rate`."""
    return f"t3/contention/{_rate(rate)}/units-{share}"


def all_reduce(model: str, share: int, rate: float) -> Spec:
    """A GEMM on all units, then reduce-scatter and all-gather kernels on `share` of them; the times of these count."""
    return named(
        f"{model}/op/tp8",
        "sequential",
        f"t3/contention/{_rate(rate)}/{model}/all-reduce-{share}",
        communication_units=share,
        communication_bandwidth=rate,
    )


def gemm(model: str, layer: str, units: int) -> Spec:
    """The GEMM alone on so many units."""
    return named(f"{model}/{layer}/tp8", "gemm", f"t3/contention/{model}/{layer}/gemm-{units}", compute_units=units)


def points() -> list[Spec]:
    """All that the question needs."""
    shares = (UNITS, *SHARES)
    return [
        *(all_reduce(model, share, rate) for rate, model, share in product(RATES, MODELS, shares)),
        *(
            gemm(model, layer, units)
            for model, layer, units in product(MODELS, LAYERS, (UNITS, *(UNITS - share for share in SHARES)))
        ),
    ]


def _all_reduce_cycles(outcomes: Outcomes, model: str, share: int, rate: float) -> int | None:
    result = result_of(outcomes, all_reduce(model, share, rate))
    return None if result is None else result["rs_cycles"] + result["ag_cycles"]


def _layer(outcomes: Outcomes, model: str, layer: str, share: int, rate: float) -> tuple[int, dict[str, float]] | None:
    """Cycles of the longer of the two on their shares, and what is said of them."""
    whole, part = (_all_reduce_cycles(outcomes, model, units, rate) for units in (UNITS, share))
    alone, rest = (cycles_of(outcomes, gemm(model, layer, units)) for units in (UNITS, UNITS - share))
    if whole is None or part is None or alone is None or rest is None:
        return None
    longer = max(rest, part)
    ours = {"all_reduce": part / whole, "gemm": rest / alone, "speedup": (alone + whole) / longer}
    return longer, ours | {"ideal": (alone + whole) / max(alone, whole)}


def records(outcomes: Outcomes) -> list[Record]:
    """A record of each sub-layer and share, and of all of them. `ours`: by how much `all_reduce` and `gemm` are longer
    on their shares than on all units; `speedup` of both at once over both in turn, were they as long as alone;
    `ideal`, were they as long as on all units. The paper's are over its sub-layers: they stand beside the geomean."""
    found = []
    for rate, share in product(RATES, SHARES):
        said = []
        for model, layer in product(MODELS, LAYERS):
            values = _layer(outcomes, model, layer, share, rate)
            if values is not None:
                said.append(values[1])
                found.append(record(f"{place(rate, share)}/{model}/{layer}", *values, units=share, rate=rate))
        if len(said) == len(MODELS) * len(LAYERS):
            ours = {name: metrics.geomean([values[name] for values in said]) or 0.0 for name in said[0]}
            found.append(record(f"{place(rate, share)}/geomean", None, ours, PUBLISHED[share], units=share, rate=rate))
    return found


PART = Part(points, records)
