"""What `sampler.sv` wrote down of a GPU's channels, window by window."""

from pathlib import Path

import numpy as np

OCCUPANCY, THRESHOLD, CYCLES = 16, 17, 18
"""Columns of a line after the 16 counts of column commands."""


def read_samples(folder: Path, rank: int) -> np.ndarray:
    """The lines of `rank` as an array; none if the simulation broke off before its first window."""
    file = folder / f"samples{rank}.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return np.array([line.split() for line in lines], np.int64).reshape(-1, CYCLES + 1)


def mean_occupancy(samples: np.ndarray, channels: int) -> list[float]:
    """Requests in a channel's DRAM queue, the mean of each window."""
    cycles = np.maximum(samples[:, CYCLES], 1)
    answer: list[float] = (samples[:, OCCUPANCY] / cycles / channels).round(2).tolist()
    return answer
