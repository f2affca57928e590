"""Golden model of DRAM with op-and-store: commands take effect at once, in the order in which they are issued."""

from collections.abc import Callable

from sim.golden.arithmetic import sector_result


class SectorStore:
    """Sectors (32 bytes) with an epoch tag; `initial` gives the content of an untouched address."""

    def __init__(self, initial: Callable[[int], bytes]):
        self._initial = initial
        self.data: dict[int, bytes] = {}
        self.tags: dict[int, int] = {}

    def read(self, address: int) -> bytes:
        """Content of a sector."""
        return self.data.get(address, self._initial(address))

    def write(self, address: int, new: bytes, mask: int, epoch: int) -> None:
        """Plain store by byte mask; a whole sector takes the epoch."""
        self.data[address] = sector_result("store", "fp16", self.read(address), new, mask)
        if mask == 0xFFFFFFFF:
            self.tags[address] = epoch

    def update(
        self, address: int, new: bytes, mask: int, op: str, dtype: str, first_touch: bool = False, epoch: int = 0
    ) -> None:
        """Op-and-store; with `first_touch` the first one of an epoch acts as a store."""
        first = first_touch and self.tags.get(address, 0) != epoch
        self.data[address] = sector_result(op, dtype, self.read(address), new, mask, first)
        if first:
            self.tags[address] = epoch


def mix(value: int) -> int:
    """C. Wellons' lowbias32."""
    value = ((value ^ value >> 16) * 0x7FEB352D) & 0xFFFFFFFF
    value = ((value ^ value >> 15) * 0x846CA68B) & 0xFFFFFFFF
    return value ^ value >> 16


def hashed_sector(address: int) -> bytes:
    """First content of the HBM model, and its content beyond the end of its storage."""
    return b"".join(mix(8 * address + word).to_bytes(4, "little") for word in range(8))
