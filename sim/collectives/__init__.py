"""Collectives as programs: what each rank's regions of memory do with the accesses that reach them, and the compiler
that turns a program into the register writes of a node.

`program` holds the words of a program, `check` what no program may say, `interpret` what it does to data and how much
it moves, `compiler` what it is on this hardware; each collective is a file of its own.
"""
