"""What stands around a node in simulation: compute units, DRAM, links, stalls, the DRAM timing checker."""

from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent
"""Folder of the models in SystemVerilog and C++."""


def model_texts(names: Iterable[str]) -> dict[str, str]:
    """File name -> content of models in SystemVerilog and C++."""
    return {name: (FOLDER / name).read_text() for name in names}
