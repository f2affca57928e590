"""A GEMM on every GPU, and no communication: what an overlapped GEMM is compared with.

Its output is tracked, so that its end is seen as that of a collective is.
"""

from functools import lru_cache

from sim.collectives import closed_forms
from sim.collectives.program import Array, Kernel, Part, Program, Region
from sim.golden import gather


@lru_cache
def gemm_alone(gpus: int, chunks: int = 1, dtype: str = "fp16") -> Program:
    """The program, with an output of `chunks` chunks."""
    output = tuple(Part("output", chunk) for chunk in range(chunks))
    return Program(
        name="gemm-alone",
        gpus=gpus,
        arrays=(Array("output", chunks, dtype, traffic="gemm"),),
        regions=lambda rank: (Region(part.array, part.chunk, updates=1) for part in output),
        kernels=lambda rank: (Kernel("gemm", output),),
        result=lambda rank: output,
        golden=gather.kept,
        closed_form=lambda rank: closed_forms.gemm_alone(chunks),
    )
