"""Formal proofs: `python -m tb.formal` or `make formal`.

A proof (:mod:`tb.formal.proof`) is a function that fills a bench (:mod:`tb.formal.bench`) with a block of `hw`,
assumptions about its inputs and claims. :mod:`tb.formal.solver` proves it, shows by covers that it is not vacuous, and
that it fails on a seeded bug.
"""
