"""What a full-size run gains over Sequential: the same GEMM, machine and mode, phases one after the other, run once and
kept among the points of `t3rtl sweep` and `t3rtl report`."""

from dataclasses import replace
from pathlib import Path

from sim.errors import UsageError
from sim.experiments.results import Result
from sim.experiments.run import Progress
from sim.experiments.spec import Spec
from sim.experiments.spec_values import ARRAY, PROGRAM
from sim.experiments.variants import VARIANTS
from sim.report.metrics import BASELINE, ideal_speedup, percent_of_ideal

PHASES = ("gemm", "rs", "ag")


def baseline_of(spec: Spec) -> Spec | None:
    """The run that `spec` is compared with; None when there is no such thing, or it is that itself."""
    if spec.compute in (ARRAY, PROGRAM) or not spec.variant.overlapped:
        return None
    return replace(spec, variant=VARIANTS[BASELINE])


def gain(result: Result, sequential: Result) -> str:
    """Speedup of `result` over `sequential`, the most that overlap could gain, and how much of that it is."""
    speedup = sequential["cycles"] / result["cycles"]
    gemm, rs, ag = (sequential[f"{name}_cycles"] or 0 for name in PHASES)
    ideal = ideal_speedup(gemm, rs, ag)
    share = percent_of_ideal(speedup, ideal)
    gained = "n/a: nothing is to be gained" if share is None else f"{share:.0f} % of its gain"
    return f"{speedup:.3f} over Sequential (ideal {ideal:.3f}, {gained})"


def compared(result: Result, store: Path, run: bool, progress: Progress, threads: int = 1) -> str | None:
    """What `result` gains over the baseline in folder `store`, which is `run`, on so many `threads`, if it is not
    there; None where nothing is to be compared. `result` is kept there too."""
    from sim.experiments.experiment import run_experiment, source_version
    from sim.experiments.store import PointStore

    spec = Spec.from_json(result["spec"])
    if spec.compute in (ARRAY, PROGRAM):
        return None
    kept = PointStore(store, source_version())
    if result["passed"]:
        kept.save(spec, result)
    baseline = baseline_of(spec)
    if baseline is None:
        return None
    try:
        sequential = kept.load(baseline)
    except UsageError as error:
        return f"n/a: {error}"
    if sequential is None:
        if not run:
            return "n/a: Sequential has not been run (give --baseline, or run it with --variant sequential)"
        progress("running Sequential, to compare with; it is kept")
        sequential = run_experiment(baseline, progress, threads=threads)
        kept.save(baseline, sequential)
    return gain(result, sequential) if sequential["passed"] else "n/a: Sequential fails its checks"
