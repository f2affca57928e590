"""What runs on a GPU and who reduces: the variants that the paper compares, as records in a table.

Source: T3 (ASPLOS 2024) sections 5 and 6.
"""

from dataclasses import dataclass

from hw.messages import Policy, Threshold

POLICIES = {
    "round-robin": Policy.ROUND_ROBIN,
    "compute-first": Policy.COMPUTE_FIRST,
    "mca": Policy.MCA,
    "paced": Policy.PACED,
}
"""Arbitration between compute and communication, by the names that users write."""
THRESHOLDS = {
    "5": Threshold.OCCUPANCY_5,
    "10": Threshold.OCCUPANCY_10,
    "30": Threshold.OCCUPANCY_30,
    "none": Threshold.NONE,
    "auto": Threshold.AUTO,
}
"""DRAM-queue occupancy below which MCA admits communication; auto: the hardware chooses."""

GEMM, REDUCE_SCATTER, NEAR_MEMORY, ALL_GATHER = "gemm", "reduce-scatter", "near-memory-reduce-scatter", "all-gather"
PHASES = {GEMM: "gemm", REDUCE_SCATTER: "rs", NEAR_MEMORY: "rs", ALL_GATHER: "ag"}
"""Kernel -> the phase that its time counts for."""


@dataclass(frozen=True)
class Variant:
    """What is run: `kernels` one after the other; with `overlapped` the nodes reduce and scatter while the GEMM stores.
    `policy` and `threshold` program the arbiter, a threshold other than auto under mca only."""

    name: str
    kernels: tuple[str, ...]
    overlapped: bool = False
    policy: str = "round-robin"
    threshold: str = "auto"

    @property
    def near_memory(self) -> bool:
        """Whether the neighbour's memory adds what a kernel stores to it."""
        return NEAR_MEMORY in self.kernels

    @property
    def text(self) -> str:
        """Policy, and threshold where it means something."""
        return f"{self.policy}/{self.threshold}" if self.policy == "mca" else self.policy


def generated(policy: str, threshold: str = "auto") -> Variant:
    """A GEMM that is nothing but its stores (compute model `array`), overlapped with the reduce-scatter."""
    return Variant(policy if threshold == "auto" else f"{policy}-{threshold}", (GEMM,), True, policy, threshold)


def _overlapped(name: str, policy: str, threshold: str = "auto") -> Variant:
    return Variant(name, (GEMM, ALL_GATHER), True, policy, threshold)


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("gemm", (GEMM,)),
        Variant("sequential", (GEMM, REDUCE_SCATTER, ALL_GATHER)),
        _overlapped("t3", "round-robin"),
        _overlapped("t3-mca-5", "mca", "5"),
        _overlapped("t3-mca-10", "mca", "10"),
        _overlapped("t3-mca-30", "mca", "30"),
        _overlapped("t3-mca-none", "mca", "none"),
        _overlapped("t3-mca", "mca"),
        _overlapped("t3-paced", "paced"),
        Variant("rs-nmc", (NEAR_MEMORY,)),
    )
}
"""`gemm`: the GEMM alone, plain stores. `sequential`: GEMM, then a reduce-scatter kernel (reads own and received data,
stores to the neighbour), then an all-gather kernel. `t3`: GEMM and reduce-scatter overlapped by the hardware with
round-robin arbitration, then the same all-gather. `t3-mca-X`: the same with MCA at threshold X, `t3-mca` with the
threshold the hardware chooses. `t3-paced`: a fourth policy, which keeps communication at the pace of the link (see
:class:`hw.memory_controller.arbiter.Arbiter`). `rs-nmc`: the reduce-scatter kernel alone, its stores added to memory by
the neighbour's near-bank units: the reduce-scatter of Ideal-RS+NMC."""
