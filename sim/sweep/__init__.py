"""Grids of simulated points: which points, where their results are kept, and who runs them."""
