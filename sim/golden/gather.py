"""Golden models of collectives that move data and change none of it."""

import numpy as np


def all_gather(inputs: np.ndarray) -> np.ndarray:
    """What each rank holds after an all-gather: shape (N, N * elements) for `inputs` of shape (N, elements)."""
    inputs = np.asarray(inputs)
    return np.tile(inputs.reshape(1, -1), (len(inputs), 1))


def kept(inputs: np.ndarray) -> np.ndarray:
    """What each rank holds when nothing is moved: its own."""
    return np.asarray(inputs)


def all_to_all(inputs: np.ndarray) -> np.ndarray:
    """What each rank holds after an all-to-all: its chunk of every rank, in their order. `inputs` and the result have
    shape (N, elements)."""
    inputs = np.asarray(inputs)
    ranks = len(inputs)
    return np.stack([inputs.reshape(ranks, ranks, -1)[:, rank].ravel() for rank in range(ranks)])


def all_to_all_own_last(inputs: np.ndarray) -> np.ndarray:
    """The same, where each rank's own chunk stands behind all others in its inputs."""
    inputs = np.asarray(inputs)
    ranks = len(inputs)
    chunks = inputs.reshape(ranks, ranks, -1)
    ordered = [[*range(rank), ranks - 1, *range(rank, ranks - 1)] for rank in range(ranks)]
    return all_to_all(np.stack([chunks[rank, ordered[rank]].ravel() for rank in range(ranks)]))
