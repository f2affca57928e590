"""Amaranth's conversion of a component to RTLIL, without work that takes half of its time and changes nothing.

It reaches into Amaranth where that has no switch: `tb/unit/export/test_conversion.py` shows that the text is the same.
"""

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import _nir
from amaranth.lib import wiring


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A conversion makes millions of objects and no cycles worth finding: a third of its time would be the search."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _replaced(owner: type, name: str, function: Any) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _value_of_nets(cls: type, nets: Any = ()) -> Any:
    """As `Value.__new__`, but that none of the millions of nets is asked whether it is one."""
    return tuple.__new__(cls, (nets,) if isinstance(nets, _nir.Net) else nets)


_emit_memory = rtlil.ModuleEmitter.emit_memory


def _emit_memory_of_hardware(self: Any, cell_idx: int, cell: Any) -> None:
    """As `ModuleEmitter.emit_memory`, but of a memory that is written no contents are spelt out, a net for each bit."""
    memory = self.memories[cell_idx]
    if not memory.num_write_ports:
        _emit_memory(self, cell_idx, cell)
    elif any(cell.init):
        raise ValueError(f"memory {memory.memid} is written and has initial contents, which hardware cannot give it")
    else:
        # The name of its cell, so that all others are called as they are with contents.
        self.builder._name(None)


def to_rtlil(component: wiring.Component, name: str, sources: bool = False, contents: bool = True) -> str:
    """RTLIL of `component` as module `name`; with `sources` cells name their source lines.

    Without `contents` a memory starts with anything, as in hardware, unless it is only read, a ROM: IEEE 1800 9.2.2.4
    forbids to write in an `initial` process what an `always_ff` process writes. Raises :class:`ValueError` when a
    memory that is written has contents other than zeros all the same.
    """
    with ExitStack() as around:
        around.enter_context(_without_garbage_collection())
        around.enter_context(_replaced(_nir.Value, "__new__", _value_of_nets))
        if not contents:
            around.enter_context(_replaced(rtlil.ModuleEmitter, "emit_memory", _emit_memory_of_hardware))
        return rtlil.convert(component, name=name, emit_src=sources)
