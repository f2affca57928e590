"""Golden model of a ring reduce-scatter on bit patterns: the order of the additions, and nothing else.

Source: the order of NCCL's ring. For chunk c on ranks 0..N-1 (modulo N) in direction +1 the result is
fl(...fl(fl(x[c+1] + x[c+2]) + x[c+3])... + x[c]), each partial rounded to the data type. Two addends meet at each
step, so arrival order cannot matter and hardware must agree in every bit. Direction -1 goes x[c-1], x[c-2], ..., x[c].
"""

import numpy as np

from sim.golden.arithmetic import reduce


def ring_reduce_scatter(
    inputs: np.ndarray, dtype: str, op: str, direction: int = 1, zeroing: bool = False
) -> np.ndarray:
    """What each rank holds after a ring reduce-scatter: shape (N, elements / N), row r is chunk r.

    `inputs`: bit patterns of shape (N, elements) or (N, N, elements / N), one row per rank. `dtype` is fp16, bf16,
    fp32 or int32, `op` add, min or max. With `zeroing` the output starts as +0 and is added to, so that the first
    addend of a sum meets +0 (only -0 + -0 comes out differently); min and max start from their identity, and are
    unaffected. Raises :class:`ValueError` for a shape, direction, type or operation that does not exist.
    """
    inputs = np.asarray(inputs)
    ranks = inputs.shape[0] if inputs.ndim else 0
    chunked = inputs.ndim == 2 or (inputs.ndim == 3 and inputs.shape[1] == ranks)
    if not chunked or ranks < 2 or inputs[0].size % ranks:
        raise ValueError(f"inputs must have shape (N, elements) with elements a multiple of N >= 2, got {inputs.shape}")
    if direction not in (1, -1):
        raise ValueError(f"direction must be +1 or -1, got {direction}")
    chunks = inputs.reshape(ranks, ranks, -1)
    results = []
    for c in range(ranks):
        partial = chunks[(c + direction) % ranks, c]
        if zeroing and op == "add":
            partial = reduce(op, dtype, np.zeros_like(partial), partial)
        for step in range(2, ranks + 1):
            partial = reduce(op, dtype, partial, chunks[(c + direction * step) % ranks, c])
        results.append(partial)
    return np.stack(results)
