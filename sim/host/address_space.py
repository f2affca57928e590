"""Where software puts its arrays in a GPU's memory, in sectors."""

ARRAY_BASE = 1 << 30
"""First sector of the output array on every GPU (32 GiB up: the upper half of the address is exercised too)."""
