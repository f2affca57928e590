"""The programs by name, and what may be chosen of each."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sim.collectives.all_to_all import all_to_all
from sim.collectives.all_to_all_dma import all_to_all_dma
from sim.collectives.all_to_all_reduce_scatter import all_to_all_reduce_scatter
from sim.collectives.broadcast_chain import broadcast_chain
from sim.collectives.broadcast_tree import broadcast_tree
from sim.collectives.check import check_links
from sim.collectives.direct_all_gather import direct_all_gather
from sim.collectives.direct_all_gather_gemm import direct_all_gather_gemm
from sim.collectives.direct_all_reduce import direct_all_reduce
from sim.collectives.direct_reduce_scatter import direct_reduce_scatter
from sim.collectives.fetched_gemm import fetched_gemm
from sim.collectives.gemm_alone import gemm_alone
from sim.collectives.hosted_gemm import hosted_gemm
from sim.collectives.program import Program, ProgramError
from sim.collectives.ring_all_gather import ring_all_gather
from sim.collectives.ring_all_gather_both import ring_all_gather_both
from sim.collectives.ring_all_gather_gemm import ring_all_gather_gemm
from sim.collectives.ring_all_reduce import ring_all_reduce
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.collectives.ring_reduce_scatter_both import ring_reduce_scatter_both
from sim.collectives.split_k_reduce_scatter import split_k_reduce_scatter
from sim.topologies.known import TOPOLOGIES, topology

FEWEST_UNLIKE = 5
"""GPUs of which no two topologies have the same links."""


@dataclass(frozen=True)
class Known:
    """How a program is made for so many GPUs, and `summary`, a line about it."""

    make: Callable[..., Program]
    summary: str

    @property
    def options(self) -> dict[str, Any]:
        """What else may be said of it, by name, and what holds when it is not."""
        parameters = list(inspect.signature(self.make).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}

    @property
    def topologies(self) -> Iterator[str]:
        """The topologies that have all links it needs, whatever the number of GPUs."""
        for name in TOPOLOGIES:
            try:
                check_links(self.make(FEWEST_UNLIKE), topology(name, FEWEST_UNLIKE))
            except ProgramError:
                continue
            yield name


PROGRAMS: dict[str, Known] = {
    "ring-reduce-scatter": Known(ring_reduce_scatter, "sums go round the ring, each GPU adds its addend"),
    "ring-reduce-scatter-both": Known(ring_reduce_scatter_both, "half of each chunk each way round"),
    "direct-reduce-scatter": Known(direct_reduce_scatter, "every store goes to its owner"),
    "split-k-reduce-scatter": Known(split_k_reduce_scatter, "a ring that a split-K GEMM stores S addends into"),
    "ring-all-gather": Known(ring_all_gather, "chunks go round the ring"),
    "ring-all-gather-both": Known(ring_all_gather_both, "half of each chunk each way round"),
    "direct-all-gather": Known(direct_all_gather, "one read of a chunk for all others"),
    "all-to-all": Known(all_to_all, "every store goes where it is wanted"),
    "all-to-all-reduce-scatter": Known(all_to_all_reduce_scatter, "an all-to-all of stores, and a local sum"),
    "all-to-all-dma": Known(all_to_all_dma, "doorbells send what lies in memory"),
    "ring-all-reduce": Known(ring_all_reduce, "a ring reduce-scatter that goes on as an all-gather"),
    "direct-all-reduce": Known(direct_all_reduce, "every store to its owner, one read of each sum for all others"),
    "ring-all-gather-gemm": Known(ring_all_gather_gemm, "chunks of A that go round launch workgroups"),
    "direct-all-gather-gemm": Known(direct_all_gather_gemm, "chunks of A that are sent to all launch workgroups"),
    "fetched-gemm": Known(fetched_gemm, "chunks of A by planned routes, C reduced where it lies"),
    "hosted-gemm": Known(hosted_gemm, "A and B from a host by planned routes, C reduced where it lies there"),
    "gemm-alone": Known(gemm_alone, "a GEMM on each GPU, and no communication"),
    "broadcast-chain": Known(broadcast_chain, "pieces go from rank to rank"),
    "broadcast-tree": Known(broadcast_tree, "pieces go from each rank to two others"),
}


@contextmanager
def known_as(name: str, make: Callable[..., Program], summary: str = "") -> Iterator[None]:
    """Within, `name` is a collective like all others, which `make` makes for so many GPUs: experiments run it on the
    RTL. Raises :class:`ProgramError` when there is one of that name."""
    if name in PROGRAMS:
        raise ProgramError(f"there is a collective called {name}")
    PROGRAMS[name] = Known(make, summary)
    try:
        yield
    finally:
        del PROGRAMS[name]


def program(name: str, gpus: int, **options: Any) -> Program:
    """The program called `name` for `gpus` GPUs. Raises :class:`ProgramError` when there is none, when it cannot serve
    so many GPUs, or has no such option."""
    if name not in PROGRAMS:
        raise ProgramError(f"collective must be one of {', '.join(PROGRAMS)}; got {name!r}")
    known = PROGRAMS[name]
    for option in options:
        if option not in known.options:
            raise ProgramError(f"{name} has no {option}, only {', '.join(known.options)}")
    return known.make(gpus, **options)
