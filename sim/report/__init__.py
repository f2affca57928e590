"""The paper's figures from simulated points: which points, what is computed from them, charts, and one HTML page."""
