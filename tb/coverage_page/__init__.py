"""One page on what has been verified and how far: per block tests, coverage, proofs and mutants, down to source lines.

`make coverage` runs the quick tests with T3_COVERAGE=1 and then `python -m tb.coverage_page`, which reads what is in
build/: the runs (:mod:`tb.coverage_page.measured`), results of tests, functional coverage, proofs and mutants
(:mod:`tb.coverage_page.inputs`). What is not there is shown as "not measured".
"""
