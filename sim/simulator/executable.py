"""Builds a stand-alone simulator, one that runs without Python, from SystemVerilog and C++."""

import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from sim.errors import MachineError
from sim.simulator.verilator import BUILD, prepare_environment

FLAGS = ["--build", "-j", "2", "-Wno-lint", "-Wno-style", "-O3", "--x-assign", "fast", "--x-initial", "fast"]
OPTIMIZE = "-O1"


def build_executable(top: str, texts: Mapping[str, str], arguments: Sequence[str]) -> Path:
    """The simulator of module `top` in `texts` (file name -> content), built unless it is there already.

    `arguments` are Verilator's. The build is named after all that it is made from. Raises
    :class:`sim.errors.MachineError` when Verilator or the C++ compiler fails.
    """
    prepare_environment(OPTIMIZE)
    digest = hashlib.sha256(repr((sorted(texts.items()), FLAGS, list(arguments), OPTIMIZE)).encode()).hexdigest()
    folder = BUILD / top / digest[:16]
    folder.mkdir(parents=True, exist_ok=True)
    executable = folder / f"V{top}"
    with FileLock(str(folder) + ".lock"):
        if not executable.exists():
            for name, text in texts.items():
                (folder / name).write_text(text)
            files = [str(folder / name) for name in texts]
            command = ["verilator", *FLAGS, *arguments, "--top-module", top, "--Mdir", str(folder), *files]
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)
            if outcome.returncode:
                raise MachineError(f"{top} does not build:\n{(outcome.stdout + outcome.stderr)[-2000:]}")
    return executable
