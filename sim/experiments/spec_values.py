"""What the fields of a spec can be: names, limits, and what machine PAPER has."""

from typing import Any, NamedTuple

from sim.collectives.program import Sharing
from sim.experiments.variants import generated
from sim.topologies.known import TOPOLOGIES as KNOWN_TOPOLOGIES

ARRAY_COLLECTIVES = ("ring-reduce-scatter", "ring-all-gather", "ring-all-reduce")
"""Those of compute model array; the first one is the only one of full-size kernels."""
TOPOLOGIES = tuple(KNOWN_TOPOLOGIES)
"""All but the first one are of compute model program."""
SWITCH, HOSTED = "switch", ("hosted-ring", "hosted-mesh")
"""Those on which a node alone cannot stand for all."""
ARRAY, KERNELS, TRACE, PROGRAM = "array", "kernels", "trace", "program"
COMPUTE_MODELS = (ARRAY, KERNELS, TRACE, PROGRAM)
"""Where a GPU's stores come from: `array`, a generator that stores a real array in the GEMM's order; `kernels`, GEMM
and communication kernels workgroup by workgroup at full size, times by machine PAPER's formula; `trace`, the same
with the order and the times of the GEMM's workgroups as recorded on a GPU; `program`, the kernels of any collective
tile by tile, with real data."""
MODES = ("mirrored", "ring")
"""`mirrored`: one node whose outgoing traffic comes back as its peers' (the paper's method); of full-size kernels
without data, of programs with data that is the same on all ranks, in chunks as much further on. `ring`: N nodes, data
checked bit for bit."""
OPERATIONS = ("add", "min", "max")
DIRECTIONS = {"cw": 1, "ccw": -1}
"""Way round the ring: `cw` sends to the next rank, as NCCL does."""
INITIALS = ("first-touch", "zeroing")
SHARING = {
    "own": Sharing.OWN,
    "partitioned": Sharing.OWN,
    "side-by-side": Sharing.FOLLOWS,
    "priority": Sharing.PRECEDES,
}
"""On whose compute units the kernels of a collective run beside an independent GEMM: units that the GPU has besides;
some of the GEMM's, from which it keeps away; some of the GEMM's, which came first; the same, and they came first."""
SCHEDULES = ("staggered", "sweep")
"""How workgroups run: `staggered` in stages of 80 (one a CU), or `sweep`, a whole chunk in one stage, so that all its
WF tiles are live at once. Either way the chunks follow in the ring's staggered order."""
PRESET_OF = {1: "paper", 2: "quad", 4: "quad", 8: "gpu", 16: "gpu", 32: "gpu"}
"""By channels of full-size kernels, the preset of which they are so many."""
TILE_ORDERS = ("tuned", "rows")
"""Of a GEMM's tiles within a chunk: as a library tunes it (:mod:`sim.workloads.tile_order`), or row by row whatever it
reads."""
ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "int32": 4}
DTYPES = tuple(ELEMENT_BYTES)
LARGEST_SIDE = 1 << 20
MOST_BIT_ERRORS = 1e-3
"""Of the bits on a link; a packet of 9 flits then arrives whole once in twenty times."""
PROGRAM_FIELDS = ("dtype", "op", "first_touch", "direction")
"""Options of programs that are fields of a spec."""
ARRAY_FIELDS = (
    *("dtype", "op", "tile", "wfs", "dma_block", "direction", "initial", "stalls", "schedule", "alone", "overflow"),
    *("bit_errors", "late_rank", "late_cycles", "bug", "inputs", "choices", "independent", "machine"),
    *("gemm_shape", "sharing", "host_bandwidth"),
)
"""What full-size kernels do not know: they have these at their defaults."""


MCA = generated("mca")


class Gpu(NamedTuple):
    """The GPU, and the slice of it, on which full-size kernels run; see :class:`Spec`."""

    link_bandwidth: float
    compute_units: int
    channels: int
    tracker_ways: int
    tile_order: str
    prefetch: int
    reads_under_way: int
    workgroups_per_unit: int
    communication_units: int
    communication_bandwidth: float


MACHINE: dict[str, Any] = Gpu(75.0, 80, 1, 8, "tuned", 1, 0, 1, 0, 0.0)._asdict()
"""Machine PAPER, how a GEMM's workgroups read, and on what kernels that communicate run."""
MOST_LATE_CYCLES = 10_000_000
"""So that a kernel that waits for its rank to be armed can be told when to begin (`not_before` of a plan)."""
MOST_PREFETCHED, MOST_READS, MOST_PER_UNIT = 2, 255, 3
LEAST_OF_A_UNIT, MOST_OF_A_UNIT = 1, 1024
"""GB/s that a compute unit copies: a piece of a kernel that communicates has 20 bits of cycles, a run 32."""
