"""Golden model of an all-gather: every rank ends with what all ranks had, in their order."""

import numpy as np


def all_gather(inputs: np.ndarray) -> np.ndarray:
    """What each rank holds after an all-gather: shape (N, N * elements) for `inputs` of shape (N, elements)."""
    inputs = np.asarray(inputs)
    return np.tile(inputs.reshape(1, -1), (len(inputs), 1))
