"""One point of the paper's evaluation: a sub-layer at full size in one configuration.

A :class:`Point` holds plain values only, so that a grid of points can be written down, hashed, and sent to another
process or machine. :mod:`sim.experiments.experiment` simulates it.

Source: T3 (ASPLOS 2024) sections 5 and 6.
"""

from dataclasses import dataclass

from sim.errors import UsageError
from sim.workloads.table import WORKLOADS, Workload

CONFIGURATIONS = (
    "gemm",
    "sequential",
    "t3",
    "t3-mca-5",
    "t3-mca-10",
    "t3-mca-30",
    "t3-mca-none",
    "t3-mca",
    "t3-paced",
    "rs-nmc",
)
"""`gemm`: the GEMM alone, plain stores, nothing else. `sequential`: GEMM, then a reduce-scatter kernel (reads own
and received data, stores to the neighbour), then an all-gather kernel. `t3`: GEMM and reduce-scatter overlapped by
the hardware with round-robin arbitration, then the same all-gather. `t3-mca-X`: the same with MCA at threshold X,
`t3-mca` with the threshold the hardware chooses. `t3-paced`: a fourth policy, which keeps communication at the pace
of the link (see :class:`hw.memory_controller.arbiter.Arbiter`). `rs-nmc`: the reduce-scatter kernel alone, its
stores added to memory by the neighbour's near-bank units: the reduce-scatter of Ideal-RS+NMC."""
MODES = ("mirrored", "ring")
"""`mirrored`: one node whose outgoing traffic comes back as its neighbour's (the paper's method). `ring`: N nodes, data
checked bit for bit."""
CHANNELS = (1, 2, 4)
TILE_ORDERS = ("tuned", "rows")
"""Of a GEMM's tiles within a chunk: as a library tunes it (:mod:`sim.workloads.tile_order`), or row by row whatever it
reads."""


@dataclass(frozen=True)
class Point:
    """What is simulated. Constructing it checks it: a wrong value is a :class:`sim.errors.UsageError`.

    `workload` is the name of a sub-layer of :data:`sim.workloads.table.WORKLOADS`; or, with `trace` (see
    :mod:`sim.workloads.recorded_trace`) and `shape` (M, N, K, TP), any name: then the GEMM's workgroups run as
    recorded. `link_bandwidth` is GB/s per direction of the whole GPU; `channels` the slice S of its 32 channels;
    `tile_order` one of :data:`TILE_ORDERS` (a trace has its own). `starvation_limit` is in cycles, 0 for none;
    `tracker_ways` the associativity of the Tracker (256 sets). `seed` names the run; in ring mode the operands too.
    """

    workload: str
    configuration: str = "t3-mca"
    link_bandwidth: float = 75.0
    compute_units: int = 80
    channels: int = 1
    mode: str = "mirrored"
    starvation_limit: int = 2000
    tracker_ways: int = 8
    seed: int = 1
    trace: str = ""
    shape: tuple[int, ...] = ()
    tile_order: str = "tuned"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if bool(self.trace) != (len(self.shape) == 4):
            raise UsageError("a trace needs a shape M, N, K and TP, and only a trace has one")
        if self.trace and not (min(self.shape) >= 1 and 2 <= self.shape[3] <= 32):
            raise UsageError(f"shape must be M, N and K of at least 1 and TP from 2 to 32, got {self.shape}")
        if not self.trace and self.workload not in {workload.name for workload in WORKLOADS}:
            names = ", ".join(workload.name for workload in WORKLOADS)
            raise UsageError(f"workload must be one of {names}; got {self.workload!r}")
        for name, allowed in {
            "configuration": CONFIGURATIONS,
            "mode": MODES,
            "channels": CHANNELS,
            "tracker_ways": (1, 2, 4, 8, 16),
            "tile_order": TILE_ORDERS,
        }.items():
            value = getattr(self, name)
            if value not in allowed or isinstance(value, bool):
                choices = ", ".join(map(str, allowed))
                raise UsageError(f"{name.replace('_', '-')} must be one of {choices}; got {value!r}")
        for name, low, high in (("compute_units", 1, 240), ("starvation_limit", 0, 65535), ("seed", 0, (1 << 31) - 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise UsageError(f"{name.replace('_', '-')} must be a whole number from {low} to {high}, got {value!r}")
        if not isinstance(self.link_bandwidth, int | float) or not 1 <= self.link_bandwidth <= 1024:
            raise UsageError(f"link-bandwidth must be from 1 to 1024 GB/s, got {self.link_bandwidth!r}")

    @property
    def sublayer(self) -> Workload:
        """The sub-layer that `workload` or `shape` names."""
        if self.trace:
            m, n, k, tp = self.shape
            return Workload("recorded", self.workload, tp, m, n, k)
        return next(workload for workload in WORKLOADS if workload.name == self.workload)
