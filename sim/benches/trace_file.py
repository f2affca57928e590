"""DRAM request traces: text lines `0xADDR READ|WRITE|UPDATE CYCLE`, and the three that a controller is measured by.

DRAMsim3's traces are such lines, whose accesses have further names there. Ramulator's are read too: `0xADDR R` or
`0xADDR W`, and those of Ramulator 2, `LD ADDR` and `ST ADDR`; they say no cycle, which is 0: as soon as can be.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hw.config import SECTOR_BITS
from hw.messages import Access
from sim.errors import UsageError
from sim.files import replaced
from sim.models.hbm import SECTOR_ADDRESS_BITS

CHANNEL_BYTES = 1 << (SECTOR_ADDRESS_BITS + SECTOR_BITS)
"""A channel holds 1 GiB; bits of a byte address from the bottom: 5 offset, 2 bank group, 6 column, 2 bank, 15 row."""
ACCESSES = {"READ": Access.READ, "WRITE": Access.STORE, "UPDATE": Access.UPDATE}
DRAMSIM3 = {
    **dict.fromkeys(("read", "P_MEM_RD", "P_FETCH"), Access.READ),
    **dict.fromkeys(("write", "P_MEM_WR", "BOFF"), Access.STORE),
}
RAMULATOR = {"R": Access.READ, "W": Access.STORE, "LD": Access.READ, "ST": Access.STORE}
CYCLES = 1 << 48
KINDS = ("sequential-read", "sequential-write", "random-read")
_RECORD = np.dtype([("cycle", "<u8"), ("what", "<u8")])


@dataclass(frozen=True)
class Trace:
    """Requests in the order in which they are made: `access` (:class:`hw.messages.Access` values), byte `address`,
    and the first `cycle` in which each may be offered (0: as soon as the one before is accepted)."""

    access: np.ndarray
    address: np.ndarray
    cycle: np.ndarray

    def __len__(self) -> int:
        return len(self.address)

    @property
    def reads(self) -> int:
        """Requests that read."""
        return int((self.access == Access.READ.value).sum())

    def records(self) -> np.ndarray:
        """What `trace_player.sv` plays: 128 bits each."""
        records = np.empty(len(self), _RECORD)
        records["what"] = self.access.astype(np.uint64) << np.uint64(62) | self.address >> np.uint64(SECTOR_BITS)
        records["cycle"] = self.cycle
        return records


def read_trace(path: Path) -> Trace:
    """The trace in the text file `path`; empty lines, and what follows a `#`, are skipped.

    A line that is none is a :class:`sim.errors.UsageError` with its number.
    """
    if not path.is_file():
        raise UsageError(f"{path} does not exist or is not a file")
    access: list[int] = []
    address: list[int] = []
    cycle: list[int] = []
    codes = {name: code.value for name, code in (ACCESSES | DRAMSIM3 | RAMULATOR).items()}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split("#", 1)[0].split()
            if not words:
                continue
            try:
                where, what, when = words if len(words) == 3 else _ramulator(*words)
                address.append(int(where, 16))
                access.append(codes[what])
                cycle.append(int(when))
            except (ValueError, KeyError, TypeError):
                raise UsageError(
                    f"line {number} of {path} must be `0xADDR READ|WRITE|UPDATE CYCLE`, got {line.strip()[:80]!r}"
                ) from None
            if not 0 <= address[-1] < CHANNEL_BYTES:
                raise UsageError(
                    f"line {number} of {path}: the address must be below {CHANNEL_BYTES:#x} (1 GiB, one channel), "
                    f"got {where}"
                )
            if not 0 <= cycle[-1] < CYCLES:
                raise UsageError(f"line {number} of {path}: the cycle must be from 0 to {CYCLES - 1}, got {when}")
    if not access:
        raise UsageError(f"{path} holds no requests")
    return Trace(*(np.array(values, np.uint64) for values in (access, address, cycle)))


def _ramulator(one: str, other: str) -> tuple[str, str, str]:
    """(Address, access, cycle) of a line of Ramulator's, `0xADDR R`, or of Ramulator 2's, `LD ADDR`."""
    if one in ("LD", "ST"):
        return (other if other.startswith("0x") else f"{int(other):x}"), one, "0"
    if other not in ("R", "W"):
        raise ValueError(other)
    return one, other, "0"


def generate(kind: str, requests: int, seed: int) -> Trace:
    """A trace of `requests` accesses of 32 B, all offered as fast as accepted (cycle 0).

    sequential-*: consecutive sectors from address 0. random-read: sectors drawn uniformly, with replacement, from the
    whole gibibyte by numpy's PCG64 generator seeded with `seed`.
    """
    if kind not in KINDS:
        raise UsageError(f"generate must be one of {', '.join(KINDS)}; got {kind!r}")
    sectors = 1 << SECTOR_ADDRESS_BITS
    if not 1 <= requests <= sectors:
        raise UsageError(f"requests must be from 1 to {sectors}, got {requests}")
    if not 0 <= seed < 1 << 31:
        raise UsageError(f"seed must be from 0 to {(1 << 31) - 1}, got {seed}")
    if kind == "random-read":
        sector = np.random.default_rng(seed).integers(0, sectors, requests, np.uint64)
    else:
        sector = np.arange(requests, dtype=np.uint64)
    access = ACCESSES["WRITE" if kind == "sequential-write" else "READ"].value
    return Trace(np.full(requests, access, np.uint64), sector << np.uint64(SECTOR_BITS), np.zeros(requests, np.uint64))


def write_trace(path: Path, trace: Trace) -> None:
    """Write `trace` as text, all of it or nothing."""
    names = {code.value: name for name, code in ACCESSES.items()}
    columns = (trace.address.tolist(), trace.access.tolist(), trace.cycle.tolist())
    with replaced(path) as draft:
        draft.write_text("".join(f"0x{where:08x} {names[what]} {when}\n" for where, what, when in zip(*columns)))
