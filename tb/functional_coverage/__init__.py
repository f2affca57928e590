"""Functional coverage: which situations that matter have the tests brought about?

`plan` names them, group by group: axes with their bins, and the cross of all axes. `monitors` watch the ports of a
block in a test and say what they saw; stimulus has no part in it. With T3_COVERAGE set, each simulation leaves a file
of cocotb-coverage in build/coverage/functional; `python -m tb.functional_coverage` merges them and reports. Bins that
cannot be reached stand in `unreachable.toml` with the reason: they are taken out of the cross, listed in the report,
and a test that reaches one fails.
"""
