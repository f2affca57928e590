"""Golden models of an all-reduce: what every rank holds is the whole reduction, with a residual added or not."""

from collections.abc import Sequence

import numpy as np

from sim.golden.ring import ring_reduce_scatter
from sim.golden.total import total


def _split(inputs: Sequence[np.ndarray], addends: int, residual: bool) -> tuple[np.ndarray, np.ndarray]:
    """By rank `addends` outputs, shape (N, addends, elements), and the residuals of the own chunks, (N, elements / N)
    or (N, 0); a rank's input is the former, then the latter."""
    given = np.asarray(inputs)
    ranks = len(given)
    own = given.shape[1] // (addends * ranks + 1) if residual else 0
    outputs = given[:, : given.shape[1] - own].reshape(ranks, addends, -1)
    return outputs, given[:, given.shape[1] - own :]


def ring_all_reduce(
    inputs: Sequence[np.ndarray],
    dtype: str,
    op: str,
    pieces: int = 1,
    splits: int = 1,
    residual: bool = False,
    zeroing: bool = False,
) -> np.ndarray:
    """What each rank holds: shape (N, elements). `inputs` by rank: `splits` outputs of `pieces` x N chunks, and with
    `residual` what is added to the rank's own chunk of each piece.

    Two addends at a time in the order of the ring, where that is all; otherwise the order is not known, and operands of
    which it matters are refused (:func:`sim.golden.total.total`).
    """
    outputs, residuals = _split(inputs, splits, residual)
    ranks = len(outputs)
    if splits > 1 or residual:
        # By piece and owner, one addend of each output, and the residual of the owner.
        addends = outputs.reshape(ranks * splits, pieces * ranks, -1)
        if residual:
            last = residuals.reshape(ranks, pieces, -1).transpose(1, 0, 2).reshape(1, pieces * ranks, -1)
            addends = np.concatenate([addends, last])
        return np.tile(total(addends, dtype, op, zeroing).ravel(), (ranks, 1))
    chunks = outputs.reshape(ranks, pieces, ranks, -1)
    sums = [ring_reduce_scatter(chunks[:, piece], dtype, op, zeroing=zeroing).ravel() for piece in range(pieces)]
    return np.tile(np.concatenate(sums), (ranks, 1))


def direct_all_reduce(
    inputs: Sequence[np.ndarray], dtype: str, op: str, residual: bool = False, zeroing: bool = False
) -> np.ndarray:
    """What each rank holds: shape (N, elements). `inputs` by rank: the output, and with `residual` what is added to the
    rank's own chunk. Operands of which the order matters are refused."""
    outputs, residuals = _split(inputs, 1, residual)
    addends = outputs[:, 0]
    if residual:
        addends = np.concatenate([addends, residuals.reshape(1, -1)])
    return np.tile(total(addends, dtype, op, zeroing), (len(outputs), 1))
