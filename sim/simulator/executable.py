"""Builds a stand-alone simulator, one that runs without Python, from SystemVerilog and C++."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sim.simulator.build_folder import LOG, build_failure, build_folder
from sim.simulator.verilator import BUILD, prepare_environment

FLAGS = ["--build", "-j", "2", "-Wno-lint", "-Wno-style", "-O3", "--x-assign", "fast", "--x-initial", "fast"]
OPTIMIZE = "-O1"


def build_executable(
    top: str, texts: Mapping[str, str], arguments: Sequence[str], begun: Callable[[], None] = lambda: None
) -> Path:
    """The simulator of module `top` in `texts` (file name -> content), built unless it is there already; then `begun`
    is called first.

    `arguments` are Verilator's. The build is named after all that it is made from. Raises
    :class:`sim.errors.MachineError` when Verilator or the C++ compiler fails.
    """
    prepare_environment(OPTIMIZE)
    made_from = (sorted(texts.items()), FLAGS, list(arguments), OPTIMIZE)
    with build_folder(BUILD / top / top, made_from, [f"V{top}"]) as (folder, new):
        if new:
            begun()
            for name, text in texts.items():
                (folder / name).write_text(text)
            files = [str(folder / name) for name in texts]
            command = ["verilator", *FLAGS, *arguments, "--top-module", top, "--Mdir", str(folder), *files]
            with (folder / LOG).open("w") as log:
                outcome = subprocess.run(command, stdout=log, stderr=log, check=False)
            if outcome.returncode:
                raise build_failure(f"the simulator {top}", folder / LOG)
    return folder / f"V{top}"
