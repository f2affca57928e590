"""C = A B + C of matrices that lie on a host, the last rank, over all other ranks (Uncut-GEMMs).

Every GPU computes the columns of C that are its own. It gets its columns of B, column by column, from the host, and of
A what the routes of :mod:`sim.collectives.fetch_plan` say: each row crosses one link of the host, and goes on from GPU
to GPU round a ring as it arrives, or with `spread` to all others at a time, which the plan prefers where there are the
links for it. Workgroups begin when their rows of A and columns of B are there, in the order in which the plan
expects them. What they store goes back as it is complete, and is added to C where it lies, so that nothing of C is ever
fetched.

`straight`: the simpler way, in which all GPUs get all of A from the host.
"""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, partial

import numpy as np

from sim.collectives import closed_forms
from sim.collectives.fetch_plan import Host, plan
from sim.collectives.fetched_gemm import PIECES
from sim.collectives.program import Access, Array, Kernel, Part, Program, Region, Rows, Send

TIMES = 25.0
"""That a transfer from the host takes, in transfers between GPUs, when routes are planned: 300 GB/s over 12. Any host
that is slower than the whole ring has the same routes."""


@lru_cache
def hosted_gemm(gpus: int, spread: bool = False, straight: bool = False, dtype: str = "fp16") -> Program:
    """The program for `gpus` ranks, of which the last one is the host."""
    host = gpus - 1
    ranks = range(host)
    chunks = range(1 if straight else host)
    routes = cache(lambda: plan((host,) * host, host, PIECES, Host(host, TIMES, ring=not spread)))

    def peers(rank: int, chunk: int) -> list[int]:
        if straight:
            return list(ranks) if rank == host else []
        return routes().peers(rank, chunk)

    def regions(rank: int) -> Iterator[Region]:
        there = rank == host
        wanted = partial(Region, updates=1, launch=not there, doorbell=there, whole_rows=there)
        # A workgroup's columns take longer to come than its rows, of which each GPU gets some from every link.
        for own in ranks if there else (rank,):
            yield wanted("b", own, sends=(Send(own, "b", own),) if there else ())
        for chunk in chunks:
            yield wanted("a", chunk, sends=tuple(Send(peer, "a", chunk) for peer in peers(rank, chunk)))
        if there:
            yield from (Region("c", own, Access.UPDATE, updates=1) for own in ranks)
        else:
            yield Region("c", rank, updates=1, sends=(Send(host, "c", rank, Access.UPDATE),))

    def order(rank: int, down: int, across: int) -> Sequence[int]:
        """Tiles by when the later one of their rows of A and columns of B is there; both come in turns, row by row,
        those of B first."""
        if straight:
            rows = [float(2 * host * (row + 1) / down) for row in range(down)]
        else:
            shares = [divmod((row + 1) * host, down) for row in range(down)]
            places = [(chunk, rest / down) if rest else (chunk - 1, 1.0) for chunk, rest in shares]
            rows = [2 * routes().expected(rank, chunk, share) / TIMES for chunk, share in places]
        columns = [2 * (column + 1) / across - host / down for column in range(across)]
        # Of A only comes what is left when all of B is there.
        rows = [when if when < 2 else when / 2 + 1 for when in rows] if straight else rows

        def expected(tile: int) -> tuple[float, int]:
            row, column = divmod(tile, across)
            return max(rows[row], columns[column]), tile

        return sorted(range(down * across), key=expected)

    def kernels(rank: int) -> tuple[Kernel, ...]:
        if rank == host:
            return ()
        own = Part("c", rank)
        rows = {own: tuple(Part("a", chunk) for chunk in chunks)}
        columns = {own: (Part("b", rank),)}
        tiles = lambda down, across: order(rank, down, across)  # noqa: E731
        return (Kernel("gemm", (own,), gates=rows, column_gates=columns, fine=True, order=tiles),)

    def golden(inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Nothing that is moved stays as it is: A and B are compared as they are read, C when it is computed."""
        return np.zeros((gpus, 0), np.asarray(inputs[host]).dtype)

    parts = (*(Part("a", chunk) for chunk in chunks), *(Part(name, own) for name in "bc" for own in ranks))
    return Program(
        name="hosted-gemm",
        gpus=gpus,
        arrays=(
            Array("a", len(chunks), dtype, traffic="ag"),
            Array("b", host, dtype, traffic="ag", rows=Rows.COLUMNS),
            Array("c", host, dtype, first_touch=False, traffic="rs", rows=Rows.ALL),
        ),
        regions=regions,
        kernels=kernels,
        lies=lambda rank: parts if rank == host else (),
        result=lambda rank: (),
        golden=golden,
        closed_form=lambda rank: closed_forms.hosted_gemm(host, rank == host, spread, straight),
    )
