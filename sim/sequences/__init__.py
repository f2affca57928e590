"""Collectives one after the other in one simulation, without a reset between them, some of them aborted."""
