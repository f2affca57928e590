"""Random column commands at the pace the DRAM timing allows, often at its limit."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hw.config import Timing

DTYPES = ("fp16", "bf16", "fp32", "int32")
INTERESTING_16 = (
    0x0000,
    0x8000,
    0x0001,
    0x8001,
    0x03FF,
    0x3C00,
    0xBC00,
    0x7BFF,
    0x7C00,
    0xFC00,
    0x7C01,
    0x7E00,
    0x7F80,
)


@dataclass(frozen=True)
class Command:
    """A column command issued in `cycle` to channel-local sector `address`; `kind` is "RD", "WR" or "UPDATE"."""

    cycle: int
    kind: str
    address: int
    data: bytes = bytes(32)
    mask: int = 0xFFFFFFFF
    op: str = "store"
    dtype: str = "fp16"
    first_touch: bool = False
    epoch: int = 1


def random_sector() -> bytes:
    """A sector of random bits with some special 16-bit values."""
    return b"".join(
        (random.choice(INTERESTING_16) if random.random() < 0.3 else random.getrandbits(16)).to_bytes(2, "little")
        for _ in range(16)
    )


def random_mask(kind: str, dtype: str) -> int:
    """Whole sector, or all but one or random ones of its bytes (WR) or elements (UPDATE)."""
    choice = random.random()
    if choice < 0.5:
        return 0xFFFFFFFF
    size = {"WR": 1, "UPDATE": 2 if dtype in ("fp16", "bf16") else 4}[kind]
    if choice < 0.7:
        return 0xFFFFFFFF ^ ((1 << size) - 1) << random.randrange(0, 32, size)
    return sum(((1 << size) - 1) << offset for offset in range(0, 32, size) if random.random() < 0.6)


def random_commands(
    count: int, timing: Timing, addresses: Sequence[int], epochs: Sequence[int] = (1, 2, 3)
) -> Iterator[Command]:
    """`count` commands to `addresses` (bits 1:0 the bank group) in runs of one kind, each as early as the timing allows
    or a little later, an equal part of them in each of `epochs`."""
    cycle = 0
    last_read, last_write = -1000, -1000
    free = dict.fromkeys(range(4), 0)
    kind = "UPDATE"
    for number in range(count):
        if random.random() < 0.3:
            kind = random.choice(["RD", "WR", "UPDATE", "UPDATE"])
        address = random.choice(addresses)
        group = address & 3
        earliest = max(cycle + timing.ccd_s, free[group])
        earliest = max(earliest, last_write + timing.wtr if kind == "RD" else last_read + timing.rtw)
        cycle = earliest + (random.randrange(6) if random.random() < 0.3 else 0)
        free[group] = cycle + (timing.ccdwl if kind == "UPDATE" else timing.ccd_l)
        epoch = epochs[number * len(epochs) // count]
        if kind == "RD":
            last_read = cycle
            yield Command(cycle, kind, address)
            continue
        last_write = cycle
        dtype = random.choice(DTYPES)
        yield Command(
            cycle,
            kind,
            address,
            random_sector(),
            random_mask(kind, dtype),
            random.choice(["add", "add", "min", "max", "store"]) if kind == "UPDATE" else "store",
            dtype,
            kind == "UPDATE" and random.random() < 0.7,
            epoch,
        )
