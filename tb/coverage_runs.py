"""Coverage of test runs: how a design is built for it, and what a run that passed leaves in build/coverage.

The environment variable T3_COVERAGE switches it on for every simulation of the test suite and for the fast model of a
ring: `source` for coverage of the Amaranth source (:mod:`tb.source_coverage`), `1` for Verilator's toggle and
expression coverage too.
"""

import hashlib
import json
import os
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from amaranth.lib import wiring

from hw.export.verilog import to_systemverilog
from tb.source_coverage.instrument import WRITER_SOURCE, Instrumented
from tb.source_coverage.points import read_bits

ROOT = Path(__file__).resolve().parent.parent
RTL = ROOT / "hw"
COVERAGE = Path(os.environ.get("T3_BUILD", ROOT / "build")) / "coverage"
DESIGN_NAME = "coverage_design"
"""File in a build folder with the name of the design's folder in build/coverage/designs."""
FLAGS = ("--coverage-toggle", "--coverage-expr")
_OWN_SIGNAL = re.compile(r"^(\s*(?:reg|wire|input|output) [^\n]*source_coverage_[^\n]*)$", re.MULTILINE)


def coverage_mode() -> str:
    """`off` (also for `functional` coverage alone), `source` (Amaranth source only) or `all`, by T3_COVERAGE."""
    value = os.environ.get("T3_COVERAGE", "")
    return {"": "off", "0": "off", "functional": "off", "source": "source"}.get(value, "all")


@dataclass(frozen=True)
class CoverageBuild:
    """An instrumented design: its text, the flags for Verilator, the sources it needs beside it, what its bits mean."""

    text: str
    flags: tuple[str, ...]
    sources: tuple[Path, ...]
    points: str

    def save(self, folder: Path) -> None:
        """Note in build folder `folder` what belongs to its runs, and keep what reading their coverage takes.

        A design without anything to cover leaves nothing.
        """
        if not self.sources:
            return
        name = hashlib.sha256((self.text + self.points).encode()).hexdigest()[:16]
        design = COVERAGE / "designs" / name
        if not design.exists():
            draft = design.with_suffix(f".{os.getpid()}")
            draft.mkdir(parents=True)
            (draft / "points.json").write_text(self.points)
            (draft / "design.sv").write_text(self.text)
            # Another process may have been faster.
            with suppress(OSError):
                draft.rename(design)
        (folder / DESIGN_NAME).write_text(name)


def coverage_build(component: wiring.Component, name: str, counts: bool = True) -> CoverageBuild:
    """Text of `component`, instrumented, as module `name`. Without `counts` never with toggles and expressions."""
    design = Instrumented(component, [RTL])
    counts = counts and coverage_mode() == "all"
    text = to_systemverilog(design, name, locations=counts)
    if not design.points.bits:
        return CoverageBuild(text, (), (), "")
    # What the instrumentation adds is not to be measured itself.
    text = _OWN_SIGNAL.sub(r"/*verilator coverage_off*/\n\1\n/*verilator coverage_on*/", text)
    return CoverageBuild(text, FLAGS if counts else (), (WRITER_SOURCE,), design.points.as_json(ROOT))


class RingMeasurement:
    """How :mod:`sim.simulator` measures GPUs: toggles of a whole GPU would take longer than the simulation; those of
    its blocks are counted where they are tested alone."""

    def instrument(self, component: wiring.Component, name: str) -> CoverageBuild:
        """See :class:`sim.simulator.coverage_hook.Measurement`; so for the others."""
        return coverage_build(component, name, counts=False)

    def can_record(self, build: Path) -> bool:
        """As :func:`can_record`."""
        return can_record(build)

    def record(self, build: Path, run: Path) -> None:
        """As :func:`record_run`."""
        record_run(build, run)


def measurement() -> RingMeasurement | None:
    """What the fast model of a ring is measured with; None unless T3_COVERAGE asks for it."""
    return RingMeasurement() if coverage_mode() != "off" else None


def can_record(build: Path) -> bool:
    """Whether what reading the coverage of runs in `build` takes is still there; true for a design not measured."""
    name = build / DESIGN_NAME
    return not name.exists() or (COVERAGE / "designs" / name.read_text()).exists()


def record_run(build: Path, run: Path) -> None:
    """Keep the coverage that a run in folder `run`, which has passed, left of the design built in `build`."""
    if not (build / DESIGN_NAME).exists():
        return
    runs = COVERAGE / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    entry: dict[str, str] = {"design": (build / DESIGN_NAME).read_text(), "test": _current_test()}
    name = uuid.uuid4().hex
    bits = run / "source_coverage.txt"
    if bits.exists():
        entry["bits"] = "".join("1" if bit else "0" for bit in read_bits(bits))
    counts = run / "coverage.dat"
    if counts.exists():
        keys, values = read_counts(counts)
        entry["keys"] = _keep_keys(COVERAGE / "designs" / entry["design"], keys)
        np.save(runs / f"{name}.npy", values)
    draft = runs / f"{name}.draft"
    draft.write_text(json.dumps(entry))
    draft.rename(runs / f"{name}.json")


def read_counts(path: Path) -> tuple[list[str], np.ndarray]:
    """Keys and counts of a Verilator coverage.dat."""
    keys, values = [], []
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("C '"):
            key, _, count = line[3:].rpartition("' ")
            keys.append(key)
            values.append(int(count))
    return keys, np.array(values, dtype=np.uint64)


def _keep_keys(design: Path, keys: list[str]) -> str:
    """Store `keys` once per design, in the order of the counts; returns the name of the file."""
    text = "\n".join(keys) + "\n"
    name = f"keys-{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
    if not (design / name).exists():
        draft = design / f"{name}.{os.getpid()}"
        draft.write_text(text)
        draft.rename(design / name)
    return name


def _current_test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
