"""`python -m sim.report.front_page`: draws the figure of README.md anew, from runs made for it."""

from pathlib import Path

import matplotlib as mpl

from sim.experiments.experiment import run_experiment
from sim.experiments.outcomes import Outcome
from sim.files import replaced
from sim.report.evaluation import Evaluation
from sim.report.plan import FIG_17_LAYER, PAPER
from sim.report.style import DPI, SETTINGS
from sim.report.timelines import traffic_over_time

FIGURE = Path(__file__).with_name("traffic_over_time.png")
SHOWN = ("sequential", "t3-mca")


def draw(evaluation: Evaluation, file: Path) -> None:
    """Write the figure of `evaluation`, which has the points of :data:`SHOWN`, to PNG `file`; equal runs
    give equal files."""
    with mpl.rc_context(SETTINGS):
        drawing = traffic_over_time(evaluation, SHOWN)
        assert drawing is not None
        with replaced(file) as draft:
            drawing.savefig(draft, format="png", dpi=DPI, metadata={"Software": None})


def main() -> None:
    """Run the points of :data:`SHOWN` and draw them."""
    specs = [PAPER.spec(FIG_17_LAYER, name) for name in SHOWN]
    draw(Evaluation({spec: Outcome(spec, run_experiment(spec)) for spec in specs}), FIGURE)
    print(f"figure: {FIGURE}")


if __name__ == "__main__":
    main()
