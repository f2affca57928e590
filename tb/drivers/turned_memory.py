"""A memory that is not read as it was written: what faults in memories are tested with."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Value
from amaranth.lib import data
from amaranth.lib.memory import Memory


def turned_memory(turns: Iterator[Value]) -> type[Memory]:
    """To be patched in place of `Memory`: of what each of its read ports reads, in the order in which they are made,
    the bits of the next of `turns` are turned."""

    class TurnedMemory(Memory):
        def read_port(self, **options: Any) -> Any:
            port = super().read_port(**options)
            word = Value.cast(port.data) ^ next(turns)
            read = data.View(port.data.shape(), word) if isinstance(port.data, data.View) else word
            return SimpleNamespace(addr=port.addr, en=port.en, data=read, domain=port.domain)

    return TurnedMemory
