"""Where software puts its arrays in a GPU's memory, in sectors."""

ARRAY_BASE = 1 << 30
"""First sector of the output array on every GPU (32 GiB up: the upper half of the address is exercised too), and of the
memory: of a channel, its 1 GiB."""
INPUTS = 1 << 24
"""Distance in sectors a channel, from there on, of what kernels only read: half of the memory."""


def input_base(channels: int) -> int:
    """First sector of what kernels only read."""
    return ARRAY_BASE + channels * INPUTS
