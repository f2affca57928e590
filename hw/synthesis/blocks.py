"""What is synthesized: every block of the path of a sector on its own, and the whole node."""

from ..blocks import BLOCKS as INVENTORY

BLOCKS = {name: block.make for name, block in INVENTORY.items() if block.make and block.synthesized}
"""`memory_controller` holds arbiter, DRAM queue and bank machines, `near_bank` one bank group's ALU, `tracker` the
trigger table; `node` everything but `near_bank`."""

PARTS = tuple(name for name in BLOCKS if INVENTORY[name].part_of)
"""Blocks inside of another block of the list."""
