"""Mutation testing: what share of small faults in each block's hardware does the regression notice?

Faults are made by yosys' `mutate` in the netlist that a test simulates: a bit of a cell's port inverted, stuck, or
swapped with another. Hundreds share one simulator build and are chosen by the plusarg `+mutant=N`, 0 being the right
design. Each is run through the recorded simulations of the tests that simulate this netlist, until one fails.

`recorder` is the pytest plugin that records them, `netlist` makes and applies the mutants, `execution` runs them,
`equivalence` and `reachable` prove that a survivor cannot be noticed, `survivors.toml` says why the others were not.
`python -m tb.mutation` runs it all; see `--help`.
"""
