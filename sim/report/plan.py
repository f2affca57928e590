"""Which points the report needs, in sections: the paper's sub-layers on each machine, agreement of modes, sweeps,
other systems."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hw.config import TOTAL_CHANNELS
from sim.errors import UsageError
from sim.experiments.catalogue import layer, recorded
from sim.experiments.grid import specs
from sim.experiments.spec import Spec
from sim.experiments.variants import VARIANTS
from sim.report.systems import SYSTEMS
from sim.workloads.table import MAIN_LAYERS, WORKLOADS


@dataclass(frozen=True)
class Machine:
    """A whole GPU and its links: `link_bandwidth` in GB/s per direction, and how many `compute_units`."""

    name: str
    title: str
    link_bandwidth: float
    compute_units: int

    def spec(self, workload: str, variant: str, **others: object) -> Spec:
        """A sub-layer in a variant on this machine; `others` are further fields of the spec."""
        fields = {"link_bandwidth": self.link_bandwidth, "compute_units": self.compute_units} | others
        return layer(workload, variant, **fields)


PAPER = Machine("paper", "80 CUs, 75 GB/s per direction", 75.0, 80)
LINK_150 = Machine("link-150", "80 CUs, 150 GB/s per direction", 150.0, 80)
TWICE_CUS = Machine("2x-cus", "160 CUs, 75 GB/s per direction", 75.0, 160)
MACHINES = (PAPER, LINK_150, TWICE_CUS)

LARGE_LAYERS = tuple(work.name for work in WORKLOADS if work.tp == 32)
LARGE_VARIANTS = ("sequential", "t3", "t3-mca", "t3-paced", "rs-nmc")
HALF_TRILLION = tuple(work.name for work in WORKLOADS if work.model in ("PALM", "MT-NLG"))
"""The models of about 500 billion parameters that the paper gives a geomean for."""
FIG_17_LAYER = "t-nlg/fc-2/tp8"
"""The sub-layer whose traffic over time is drawn."""
SWEPT_LAYERS = ("t-nlg/fc-2/tp8", "t-nlg/op/tp16", "mega-gpt-2/fc-1/tp16")
"""GEMM longer than RS; RS longer than GEMM; the largest output array."""
STARVATION_LIMITS = (0, 250, 500, 1000, 2000, 4000, 8000, 16000)
TRACKER_WAYS = (1, 2, 4, 8, 16)
RING_LAYERS = ("t-nlg/fc-2/tp8", "t-nlg/op/tp8", "mega-gpt-2/op/tp8")
"""Sub-layers on which N nodes and one mirrored node are compared."""
SLICE_LAYERS = ("t-nlg/fc-2/tp8", "t-nlg/ip/tp8", "t-nlg/fc-2/tp16", "t-nlg/op/tp16")
"""Sub-layers on which slices of one and of four channels are compared; in the last two the link limits."""
COMPARED = ("sequential", "t3", "t3-mca", "t3-paced")

RECORDED_LAYERS = tuple(recorded())
"""GEMMs recorded on a real GPU, in whose order and times workgroups run instead."""
SECTIONS = ("layers", "link-150", "2x-cus", "tp32", "sweeps", "ring", "slices", "recorded", *SYSTEMS)
WHOLE_GPU = "whole-gpu"
"""A section that is run only when it is asked for: each of its points takes minutes."""


def section_points(section: str) -> list[Spec]:
    """The points that `section` adds; some are in other sections too."""
    plain = {"link_bandwidth": [PAPER.link_bandwidth]}
    match section:
        case "layers":
            return specs({"workload": MAIN_LAYERS, "variant": tuple(VARIANTS), **plain})
        case "link-150":
            return specs({"workload": MAIN_LAYERS, "variant": tuple(VARIANTS), "link_bandwidth": [150.0]})
        case "2x-cus":
            return specs({"workload": MAIN_LAYERS, "variant": LARGE_VARIANTS, **plain, "compute_units": [160]})
        case "tp32":
            return specs({"workload": LARGE_LAYERS, "variant": LARGE_VARIANTS, **plain})
        case "sweeps":
            swept = {"workload": SWEPT_LAYERS, "variant": ["t3-mca"], **plain}
            return specs(swept | {"starvation_limit": STARVATION_LIMITS}) + specs(
                swept | {"tracker_ways": TRACKER_WAYS}
            )
        case "ring":
            return specs({"workload": RING_LAYERS, "variant": COMPARED, **plain, "mode": ["mirrored", "ring"]})
        case "slices":
            return specs({"workload": SLICE_LAYERS, "variant": COMPARED, **plain, "channels": [1, 4]})
        case "whole-gpu":
            return specs({"workload": MAIN_LAYERS, "variant": COMPARED, **plain, "channels": [TOTAL_CHANNELS]})
        case "recorded":
            return specs({"workload": RECORDED_LAYERS, "variant": ["t3-mca"], **plain})
        case system if system in SYSTEMS:
            return SYSTEMS[system].points()
    raise UsageError(f"section must be one of {', '.join((*SECTIONS, WHOLE_GPU))}; got {section!r}")


def needed_points(sections: Sequence[str] = SECTIONS, only: Sequence[str] = ()) -> list[Spec]:
    """All points of `sections`, each once, of sub-layers that match one of the shell-like patterns `only`, if any."""
    found = [point for section in sections for point in section_points(section)]
    chosen = [point for point in found if not only or any(fnmatchcase(point.name, text.lower()) for text in only)]
    if not chosen:
        raise UsageError(f"no sub-layer of these sections matches {', '.join(only)}; `t3rtl list` shows their names")
    return list(dict.fromkeys(chosen))
