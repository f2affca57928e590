"""Joins the C++ of a Verilated model into few files.

Verilator writes a model as many files, so that compilers work side by side. But each has to read the standard library
and a header of all variables first, which takes as long as what is in a file, and precompiling them longer still.
"""

import re
from pathlib import Path

PIECE_BYTES = 8 << 20
"""Of C++ in a piece, about; a GPU of one channel is one piece that runs often, and one that runs once."""
UNCALLED = ("verilated_dpi",)
"""Of the runtime: what imported functions call of which an argument is an array. Ours are given integers."""
_VARIABLE = re.compile(r"^(\w+) \+=((?: \\\n|[^\n\\])*)", re.MULTILINE)


def joined(folder: Path, prefix: str, newer: tuple[str, ...] = ()) -> Path:
    """Writes pieces of the model `prefix` in `folder`, and gives the makefile to use instead of Verilator's.

    What runs once (Verilator calls it slow) is compiled with `OPT_SLOW`, the rest with `OPT_FAST`, the runtime as one
    file, with -O1, which takes less time than Verilator's -Os. User files called `newer` are compiled as C++20, which
    takes longer to read the standard library in.
    """
    names = {name: words.replace("\\", "").split() for name, words in _VARIABLE.findall(_classes(folder, prefix))}
    fast = _pieces(folder, "fast", names["VM_CLASSES_FAST"] + names["VM_SUPPORT_FAST"])
    slow = _pieces(folder, "slow", names["VM_CLASSES_SLOW"] + names["VM_SUPPORT_SLOW"])
    _include(folder / "verilated_runtime.cpp", [name for name in names["VM_GLOBAL_FAST"] if name not in UNCALLED])
    makefile = folder / "pieces.mk"
    makefile.write_text(
        f"override VK_OBJS := {' '.join(fast + slow)}\n"
        "override VM_GLOBAL_FAST := verilated_runtime\n"
        "override OPT_GLOBAL := -O1\n"
        f"include {prefix}.mk\n"
        f"{' '.join(slow)}: override OPT_FAST := $(OPT_SLOW)\n"
        + "".join(f"{Path(name).stem}.o: CPPFLAGS += -std=c++20\n" for name in newer)
    )
    return makefile


def _classes(folder: Path, prefix: str) -> str:
    return (folder / f"{prefix}_classes.mk").read_text()


def _pieces(folder: Path, name: str, classes: list[str]) -> list[str]:
    """Objects of the pieces into which files `classes` are joined, of :data:`PIECE_BYTES` or one class."""
    groups: list[list[str]] = []
    room = 0
    for item in classes:
        size = (folder / f"{item}.cpp").stat().st_size
        if not groups or size > room:
            groups.append([])
            room = PIECE_BYTES
        groups[-1].append(item)
        room -= size
    for number, group in enumerate(groups):
        _include(folder / f"{name}_{number}.cpp", group)
    return [f"{name}_{number}.o" for number in range(len(groups))]


def _include(path: Path, classes: list[str]) -> None:
    path.write_text("".join(f'#include "{item}.cpp"\n' for item in classes))
