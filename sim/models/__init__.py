"""What stands around a node in simulation: compute units, DRAM, links, stalls, the DRAM timing checker."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
"""Folder of the models in SystemVerilog and C++."""
ONE_MODEL_CHANNELS = 8
"""Of a GPU of several lanes that is one model all the same: its waves are written, its coverage is measured, or it
has a seeded bug. For one of 32 channels Verilator takes 8 GB and minutes, before any of its C++ is compiled."""

_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


def model_texts(names: Iterable[str]) -> dict[str, str]:
    """File name -> content of models in SystemVerilog and C++."""
    return {name: (FOLDER / name).read_text() for name in names}


def included_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """File name -> content of the models that the C++ of `texts` includes, and of what those include; a file of `texts`
    is not among them. What is not here is of Verilator or made with the model."""
    found: dict[str, str] = {}
    unread = [text for name, text in texts.items() if name.endswith((".cpp", ".h"))]
    while unread:
        names = set(_INCLUDE.findall(unread.pop())) - {*texts, *found}
        new = model_texts(name for name in names if (FOLDER / name).exists())
        found |= new
        unread += new.values()
    return found
