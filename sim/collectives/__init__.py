"""Collectives as programs: what each rank's regions of memory do with the accesses that reach them, and the compiler
that turns a program into the register writes of a node.

`program` holds the words of a program, `check` what no program may say, `interpret` what it does to data and how much
it moves, `closed_forms` how much that must be, `limits` what it takes of a node, `compiler` what it is on this hardware,
`explain` what it is in words; each collective is a file of its own, and `known` has them by name.
"""
