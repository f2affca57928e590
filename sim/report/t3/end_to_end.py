"""Section 6.3: what faster sub-layers make of a whole training step, and of the processing of a prompt.

Communication takes up to 34 % of training and up to 43 % of prompt processing in Mega-GPT-2 and T-NLG (paper section
2.4). Here that share holds in each of them, so that what is computed is the most that a model gains: the time of a
layer's reduce-scatters and all-gathers, as simulated, over the share is the time of all; everything but the sub-layers
stays as it is. In training OP and FC-2 of the forward and IP and FC-1 of the backward pass end in an all-reduce, in
the processing of a prompt the former two.
"""

from dataclasses import dataclass
from itertools import product

from sim.experiments.spec import Spec
from sim.report import metrics
from sim.report.t3.record import Outcomes, Part, Record, named, record, result_of

MODELS = ("mega-gpt-2", "t-nlg")
DEGREES = (8, 16)
VARIANTS = ("t3", "t3-mca", "t3-paced")


@dataclass(frozen=True)
class Phase:
    """`layers` that end in an all-reduce, the greatest `share` of time that communication has, and by variant the
    greatest and the mean speedup that the paper states."""

    layers: tuple[str, ...]
    share: float
    maximum: dict[str, float]
    mean: dict[str, float]


PHASES = {
    "training": Phase(("op", "fc-2", "fc-1", "ip"), 0.34, {"t3": 1.09, "t3-mca": 1.12}, {"t3": 1.07, "t3-mca": 1.10}),
    "prompt": Phase(("op", "fc-2"), 0.43, {"t3": 1.12, "t3-mca": 1.15}, {"t3": 1.09, "t3-mca": 1.12}),
}


def run(model: str, layer: str, degree: int, variant: str) -> Spec:
    """A sub-layer, as for Figure 16."""
    workload = f"{model}/{layer}/tp{degree}"
    return named(workload, variant, f"t3/end-to-end/{workload}/{variant}")


def points() -> list[Spec]:
    """All that the question needs: the points of Figure 16."""
    layers = PHASES["training"].layers
    return [run(*each) for each in product(MODELS, layers, DEGREES, ("sequential", *VARIANTS))]


def records(outcomes: Outcomes) -> list[Record]:
    """`ours`: speedups of the whole by variant, `sub_layers`, the share of time that these take; then for each phase
    the greatest and the mean of them, beside the paper's."""
    found = []
    for name, phase in PHASES.items():
        gained: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        for model, degree in product(MODELS, DEGREES):
            turn = [result_of(outcomes, run(model, layer, degree, "sequential")) for layer in phase.layers]
            if any(each is None for each in turn):
                continue
            apart = [each for each in turn if each is not None]
            before = sum(each["cycles"] for each in apart)
            whole = sum(each["rs_cycles"] + each["ag_cycles"] for each in apart) / phase.share
            ours = {"sub_layers": before / whole}
            for variant in VARIANTS:
                runs = [result_of(outcomes, run(model, layer, degree, variant)) for layer in phase.layers]
                after = sum(each["cycles"] for each in runs if each is not None)
                if None not in runs:
                    ours[variant] = whole / (whole - before + after)
                    gained[variant].append(ours[variant])
            found.append(record(f"t3/end-to-end/{name}/{model}/tp{degree}", None, ours, phase.maximum))
        for what, stated in (("maximum", phase.maximum), ("geomean", phase.mean)):
            if all(len(values) == len(MODELS) * len(DEGREES) for values in gained.values()):
                ours = {variant: _over_all(what, values) for variant, values in gained.items()}
                found.append(record(f"t3/end-to-end/{name}/{what}", None, ours, stated))
    return found


def _over_all(what: str, values: list[float]) -> float:
    return max(values) if what == "maximum" else metrics.geomean(values) or 0.0


PART = Part(points, records)
