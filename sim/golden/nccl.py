"""What the calls of PyTorch's distributed package return, in their layouts, for arrays of bit patterns: the definition
of a result that is handed to a user.

`x` has shape (N, ...): x[r] is the tensor that rank r gives, and row r of the result the tensor that it gets. Source:
documentation of torch.distributed (reduce_scatter_tensor, all_gather_into_tensor, all_to_all_single, all_reduce), whose
collectives NCCL carries out: they cut and join tensors along their first dimension.
"""

import numpy as np

from sim.golden import gather, ring

COLLECTIVES = ("reduce_scatter_tensor", "all_gather_into_tensor", "all_to_all_single", "all_reduce")


def result_shape(collective: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape (N, ...) of what the ranks get for x of `shape` (N, ...).

    Raises :class:`ValueError` for an unknown collective, and for a first dimension of a rank's tensor that does not
    divide by N where it must.
    """
    if collective not in COLLECTIVES:
        raise ValueError(f"collective must be one of {', '.join(COLLECTIVES)}; got {collective!r}")
    if len(shape) < 2 or shape[0] < 2:
        raise ValueError(f"x must have shape (N, ...) for N >= 2 GPUs, got {shape}")
    ranks, rows, *rest = shape
    if collective in ("reduce_scatter_tensor", "all_to_all_single") and rows % ranks:
        raise ValueError(
            f"the second dimension of x must be a multiple of the {ranks} GPUs for {collective}, got {rows}"
        )
    rows = {"reduce_scatter_tensor": rows // ranks, "all_gather_into_tensor": ranks * rows}.get(collective, rows)
    return (ranks, rows, *rest)


def reduce_scatter_tensor(x: np.ndarray, dtype: str, op: str) -> np.ndarray:
    """Rank r gets rows r * R / N to (r + 1) * R / N of the reduction of all (R, ...) tensors, in the order of NCCL's
    ring."""
    shape = result_shape("reduce_scatter_tensor", x.shape)
    return ring.ring_reduce_scatter(x.reshape(len(x), -1), dtype, op).reshape(shape)


def all_reduce(x: np.ndarray, dtype: str, op: str) -> np.ndarray:
    """Every rank gets the reduction of all tensors: a ring reduce-scatter of their elements, gathered. Their number is
    filled up to a multiple of N, which no element notices but by the order of its sum."""
    shape = result_shape("all_reduce", x.shape)
    flat = x.reshape(len(x), -1)
    filled = np.pad(flat, ((0, 0), (0, -flat.shape[1] % len(x))))
    reduced = gather.all_gather(ring.ring_reduce_scatter(filled, dtype, op))
    return reduced[:, : flat.shape[1]].reshape(shape)


def all_gather_into_tensor(x: np.ndarray) -> np.ndarray:
    """Every rank gets all (R, ...) tensors below each other, in the order of ranks: (N * R, ...)."""
    return gather.all_gather(x.reshape(len(x), -1)).reshape(result_shape("all_gather_into_tensor", x.shape))


def all_to_all_single(x: np.ndarray) -> np.ndarray:
    """Rank r gets the r-th N-th of each rank's rows, in the order of ranks."""
    shape = result_shape("all_to_all_single", x.shape)
    return gather.all_to_all(x.reshape(len(x), -1)).reshape(shape)
