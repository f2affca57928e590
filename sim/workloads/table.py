"""Sub-layers of the paper's workloads whose output a tensor-parallel GEMM reduces (T3, ASPLOS 2024, Table 2).

For a model with hidden size H and TP GPUs: M = tokens, N = H, and K of one GPU is H/TP for OP (output projection),
4H/TP for FC-2 and FC-1, 3H/TP for IP (input projection).
"""

from dataclasses import dataclass

DEPTH_FACTOR = {"OP": 1, "FC-2": 4, "FC-1": 4, "IP": 3}
"""K of a sub-layer in units of H/TP."""


@dataclass(frozen=True)
class Workload:
    """One sub-layer: the GEMM of one GPU is `m` x `n` with depth `k`, in FP16."""

    model: str
    sublayer: str
    tp: int
    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        """Short unique name, for example t-nlg/fc-1/tp16."""
        return f"{self.model}/{self.sublayer}/tp{self.tp}".lower()


_MODELS = (
    ("Mega-GPT-2", 16384, 3072, (8, 16)),
    ("T-NLG", 8192, 4256, (8, 16)),
    ("GPT-3", 2048, 12288, (32,)),
    ("PALM", 2048, 18432, (32,)),
    ("MT-NLG", 2048, 20480, (32,)),
)

WORKLOADS = tuple(
    Workload(model, sublayer, tp, tokens, hidden, factor * hidden // tp)
    for model, tokens, hidden, parallelisms in _MODELS
    for tp in parallelisms
    for sublayer, factor in DEPTH_FACTOR.items()
)
"""All sub-layers of Table 2, by model, TP and sub-layer."""
MAIN_LAYERS = tuple(work.name for work in WORKLOADS if work.tp in (8, 16))
"""The 16 sub-layers of the paper's Figures 15, 16 and 18."""
