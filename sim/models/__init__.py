"""What stands around a node in simulation: compute units, DRAM, links, stalls, the DRAM timing checker."""

from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent
"""Folder of the models in SystemVerilog and C++."""
ONE_MODEL_CHANNELS = 8
"""Of a GPU of several lanes that is one model all the same: its waves are written, its coverage is measured, or it
has a seeded bug. For one of 32 channels Verilator takes 8 GB and minutes, before any of its C++ is compiled."""


def model_texts(names: Iterable[str]) -> dict[str, str]:
    """File name -> content of models in SystemVerilog and C++."""
    return {name: (FOLDER / name).read_text() for name in names}
