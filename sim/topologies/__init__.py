"""Wiring between GPUs: which port of which GPU leads where. Never the order of chunks."""
