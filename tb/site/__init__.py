"""The documentation site, `make docs`: pages written for it in `pages/`, and all others made from the sources.

It stands in `tb` because only from here all of the project can be seen: blocks and registers (`hw`), experiments and
their results (`sim`), testplan, tests and proofs. What a page shows is read where it is defined, so that nothing is
written twice.
"""
