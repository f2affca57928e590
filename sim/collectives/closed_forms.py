"""What each program moves, by hand: one GPU, by array, in chunks of it. The table of T3's collectives, line by line.

`n` GPUs; a GEMM whose depth is cut in `splits` stores every element so often; an array in `pieces` has as many chunks
for each GPU, so that all numbers are that many times as large. Nothing here is computed from a program.
"""

from collections.abc import Mapping

from sim.collectives.cut import Cut
from sim.collectives.program import Traffic

Form = dict[str, Traffic]


def ring_reduce_scatter(n: int, splits: int = 1) -> Form:
    """N - 1 chunks meet the GEMM's updates and the neighbour's; N - 2 of them go on. One goes straight to the neighbour
    as it is computed, so all its splits do."""
    return {
        "output": Traffic(
            reads=n - 2,
            local_updates=splits * (n - 1),
            arriving_updates=splits + n - 2,
            egress=splits + n - 2,
            blocks=n - 2,
            triggers=n - 1,
        )
    }


def ring_reduce_scatter_both(n: int) -> Form:
    """As one way, in half chunks."""
    return {name: traffic * 2 for name, traffic in ring_reduce_scatter(n).items()}


def direct_reduce_scatter(n: int) -> Form:
    """Every store goes to its owner; nothing is read again."""
    return {"output": Traffic(local_updates=1, arriving_updates=n - 1, egress=n - 1, triggers=1)}


def ring_all_gather(n: int) -> Form:
    """All chunks but the one that ends here are read and sent on."""
    return {
        "gathered": Traffic(reads=n - 1, local_stores=1, arriving_stores=n - 1, egress=n - 1, blocks=n - 1, triggers=n)
    }


def ring_all_gather_both(n: int) -> Form:
    """As one way, in half chunks."""
    return {name: traffic * 2 for name, traffic in ring_all_gather(n).items()}


def direct_all_gather(n: int, lying: bool = False) -> Form:
    """The own chunk is read once, for all peers; `lying` in memory, it is not stored before."""
    stored = 0 if lying else 1
    return {
        "gathered": Traffic(reads=1, local_stores=stored, arriving_stores=n - 1, egress=n - 1, blocks=1, triggers=n)
    }


def gemm_alone(chunks: int) -> Form:
    """Every chunk is stored once, and nothing is sent."""
    return {"output": Traffic(local_stores=chunks, triggers=chunks)}


def all_to_all(n: int) -> Form:
    """Every store goes where it is wanted; one chunk is the own."""
    return {
        "output": Traffic(local_stores=1, egress=n - 1, triggers=1),
        "received": Traffic(arriving_stores=n - 1, triggers=n - 1),
    }


def all_to_all_reduce_scatter(n: int) -> Form:
    """Every store goes where it is added up, the own chunk's too; the sum of all is stored once more."""
    return {
        "output": Traffic(egress=n - 1),
        "received": Traffic(local_stores=1, arriving_stores=n - 1, triggers=n),
        "reduced": Traffic(local_stores=1, triggers=1),
    }


def all_to_all_dma(n: int) -> Form:
    """N - 1 chunks that lie in memory are complete without an access, and N - 1 arrive."""
    return {
        "output": Traffic(reads=n - 1, egress=n - 1, blocks=n - 1, triggers=n - 1),
        "received": Traffic(arriving_stores=n - 1, triggers=n - 1),
    }


def ring_all_reduce(n: int, pieces: int = 1, splits: int = 1, residual: bool = False) -> Form:
    """A ring reduce-scatter whose last chunk is read once more, and an all-gather of which the own chunk is no part.
    A residual is one more update of the own chunk."""
    reduced = ring_reduce_scatter(n, splits)["output"]
    onward = Traffic(reads=1, egress=1, blocks=1, local_updates=int(residual))
    gathered = Traffic(reads=n - 2, arriving_stores=n - 1, egress=n - 2, blocks=n - 2, triggers=n - 1)
    return {"output": (reduced + onward) * pieces, "gathered": gathered * pieces}


def direct_all_reduce(n: int, residual: bool = False) -> Form:
    """Stores to the owner, which reads its sum once, for all peers."""
    return {
        "output": Traffic(
            reads=1,
            local_updates=1 + residual,
            arriving_updates=n - 1,
            egress=2 * (n - 1),
            blocks=1,
            triggers=1,
        ),
        "gathered": Traffic(arriving_stores=n - 1, triggers=n - 1),
    }


def ring_all_gather_gemm(n: int) -> Form:
    """The all-gather of A, whose own chunk lies in memory; the GEMM stores what N chunks of A give."""
    gathered = Traffic(reads=n - 1, arriving_stores=n - 1, egress=n - 1, blocks=n - 1, triggers=n)
    return {"a": gathered, "output": Traffic(local_stores=n)}


def direct_all_gather_gemm(n: int) -> Form:
    """The same with one read for all peers."""
    gathered = Traffic(reads=1, arriving_stores=n - 1, egress=n - 1, blocks=1, triggers=n)
    return {"a": gathered, "output": Traffic(local_stores=n)}


def fetched_gemm(n: int) -> Form:
    """Every chunk of A goes round once, since no rank has two to send on at a time; C is added to where it lies."""
    return {"a": ring_all_gather_gemm(n)["a"], "c": Traffic(local_updates=n)}


def hosted_gemm(n: int, host: bool, spread: bool, straight: bool) -> Form:
    """Of the host, or of one of `n` GPUs. Each chunk of A crosses one link of the host and goes round, or, `spread`, is
    read once for all other GPUs; or all of A, which then is one chunk, crosses all links of the host, read once."""
    a = (direct_all_gather_gemm if spread and n > 1 else ring_all_gather_gemm)(n)["a"] + Traffic(arriving_stores=1)
    if straight:
        a = Traffic(arriving_stores=1, triggers=1)
    if host:
        b = Traffic(reads=1, egress=1, blocks=1, triggers=1) * n
        a = Traffic(reads=1, egress=n, blocks=1, triggers=1) if straight else b
        return {"a": a, "b": b, "c": Traffic(arriving_updates=1, triggers=1) * n}
    b = Traffic(arriving_stores=1, triggers=1)
    return {"a": a, "b": b, "c": Traffic(reads=1, local_stores=1, egress=1, blocks=1, triggers=1)}


def broadcast(sends: int, root: bool, pieces: int = 1) -> Form:
    """Of a rank with so many `sends`: what came, or lies in memory of the `root`, is read once for all of them."""
    hop = int(sends > 0)
    return {"data": Traffic(reads=hop, arriving_stores=int(not root), egress=sends, blocks=hop, triggers=1) * pieces}


def in_sectors(form: Mapping[str, Traffic], cuts: Mapping[str, Cut]) -> Traffic:
    """`form` in sectors of DRAM and link, DMA blocks and WF tiles, the chunks of each array cut as `cuts` says."""
    total = Traffic()
    for name, moved in form.items():
        cut, sectors = cuts[name], moved * cuts[name].sectors
        total += Traffic(
            reads=sectors.reads,
            local_stores=sectors.local_stores,
            local_updates=sectors.local_updates,
            arriving_stores=sectors.arriving_stores,
            arriving_updates=sectors.arriving_updates,
            egress=sectors.egress,
            blocks=moved.blocks * cut.blocks,
            triggers=moved.triggers * cut.wf_tiles,
        )
    return total
