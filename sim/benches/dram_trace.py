"""Plays request traces through one DRAM channel: memory controller, HBM model, timing checker.

The traces are read and the clock is made in compiled code (`dram_trace.sv`, `free_running.cpp`); Python is not there
in between.
"""

import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hw.config import SECTOR_BYTES, Configuration
from hw.export.verilog import to_systemverilog
from hw.messages import ArbiterControl, Policy, Threshold
from sim.benches.dram_channel import STREAMS, DramChannel, TraceFigures
from sim.benches.trace_file import Trace
from sim.models import model_texts
from sim.models.timing_checker import Rule
from sim.simulator.build_folder import Building, Tell, recipe, remembered, silent
from sim.simulator.executable import build_executable
from sim.simulator.machine import build_minutes
from sim.simulator.process import disk_is_full, failure
from sim.simulator.read_latencies import latency_figures, latency_text, read_latencies
from sim.simulator.sources import digest_of

ARGUMENTS = ["--cc", "--exe", "--noassert-case", "-CFLAGS", '-DMODEL=Vdram_trace -DMODEL_HEADER=\\"Vdram_trace.h\\"']
TOP = "dram_trace"
SOURCES = ("dram_trace.sv", "trace_player.sv", "free_running.cpp", "trace_reader.cpp")
MODELS = ("hbm_array.sv", "clock_gate.sv", "read_latency.sv")
WINDOW, BOUNDARIES = 4096, (3840, 3584, 256)
PACE, PACE_LAG = 4, 64


@dataclass(frozen=True)
class TraceResult:
    """What a run of `requests` requests came to. Times are cycles of 1 ns; see :data:`TraceFigures` for the counts.

    `cycles` is the time from the first cycle to the last column command, `seconds` and `processor_seconds` the wall
    time and the processor time of the simulator. `result` is "no violation" or the name of the first timing rule the
    checker found violated; `read_latency`: :func:`sim.simulator.read_latencies.latency_figures`; `passed` moreover
    asks that every request had its column command and every read its data.
    """

    requests: int
    reads: int
    cycles: int
    seconds: float
    processor_seconds: float
    result: str
    passed: bool
    figures: dict[str, int]
    read_latency: dict[str, int] | None

    def summary(self) -> dict[str, object]:
        """For `results.json`."""
        return {
            "requests": self.requests,
            "reads": self.reads,
            "cycles": self.cycles,
            "passed": self.passed,
            "result": self.result,
            "row_hit_rate": self.row_hit_rate,
            "gigabytes_per_second": self.gigabytes_per_second,
            "peak_share": self.peak_share,
            "read_latency": self.read_latency,
            "occupancy_mean": self.figures["occupancy_sum"] / self.figures["cycles"],
            "wall_seconds": self.seconds,
            "processor_seconds": self.processor_seconds,
            "requests_per_second": self.requests_per_second,
            "kilocycles_per_second": self.kilocycles_per_second,
            "figures": self.figures,
        }

    def lines(self) -> list[tuple[str, str]]:
        """For the terminal: name and text."""
        figures = self.figures
        lines = [
            ("cycles", f"{self.cycles:,}"),
            ("cycles per request", f"{self.cycles / self.requests:.4f}"),
            ("bandwidth", f"{self.gigabytes_per_second:.2f} GB/s, {100 * self.peak_share:.1f} % of the channel's peak"),
            ("requests a second", f"{self.requests_per_second:,.0f}"),
            ("simulation speed", f"{self.kilocycles_per_second:,.0f} kcycles/s"),
            ("read latency", latency_text(self.read_latency)),
            ("row hits", f"{figures['row_hits']:,} ({100 * self.row_hit_rate:.1f} %)"),
            ("activates, refreshes", f"{figures['activates']:,}, {figures['refreshes']:,}"),
            ("timing checker", self.result),
        ]
        if figures["communication_columns"]:
            lines[1:1] = [(f"{name} done", f"{figures[f'{name}_cycles']:,}") for name in STREAMS]
            lines.append(
                ("communication held", f"at most {figures['longest_hold']:,} cycles; {figures['forced']:,} forced")
            )
        if not self.passed:
            lines.append(("result", "FAIL: a timing rule was violated, or not every request was served"))
        return lines

    @property
    def peak_share(self) -> float:
        """Of the cycles until the last request: a channel's column bus moves a sector a cycle."""
        return self.requests / self.cycles if self.cycles else 0.0

    @property
    def gigabytes_per_second(self) -> float:
        """Read and written until the last request, at 1 GHz."""
        return self.peak_share * SECTOR_BYTES

    @property
    def requests_per_second(self) -> float:
        """Of wall time."""
        return self.requests / self.seconds

    @property
    def kilocycles_per_second(self) -> float:
        """Simulated, of wall time."""
        return self.cycles / self.seconds / 1000

    @property
    def row_hit_rate(self) -> float:
        """Share of the column commands that needed no ACT of their own."""
        return self.figures["row_hits"] / self.requests


def build(config: Configuration, tell: Tell = silent) -> Path:
    """The simulator of a channel of `config`, not even exported if it is there; `tell` hears of a build."""
    noted = recipe("channel", config, digest_of(__name__))
    return remembered(noted, lambda: _built(config, tell).parent) / f"V{TOP}"


def _built(config: Configuration, tell: Tell) -> Path:
    here = Path(__file__).parent

    def begun() -> None:
        tell(Building(f"building the channel: preset {config.name}, first time only, {build_minutes('channel')}"))

    texts = {"dram_channel.sv": to_systemverilog(DramChannel(config), "dram_channel")}
    texts |= {name: (here / name).read_text() for name in SOURCES} | model_texts(MODELS)
    widths = [f"-GCONTROL_BITS={ArbiterControl.size}", f"-GFIGURE_BITS={TraceFigures.size}"]
    return build_executable(TOP, texts, [*ARGUMENTS, *widths], begun)


def arbiter_control(policy: Policy, threshold: Threshold, starvation_limit: int, refresh: bool, **detector: int) -> int:
    """Packed :data:`hw.messages.ArbiterControl`."""
    constant = ArbiterControl.const(
        {
            "policy": policy,
            "threshold": threshold,
            "starvation_limit": starvation_limit,
            "refresh": int(refresh),
            "window": WINDOW,
            "pace": PACE,
            "pace_lag": PACE_LAG,
            **dict(zip(("boundary_10", "boundary_30", "boundary_none"), BOUNDARIES, strict=True)),
            **detector,
        }
    )
    return int(constant.as_value().value)


def _result(
    traces: Mapping[str, Trace],
    figures: dict[str, int],
    read_latency: dict[str, int] | None,
    seconds: float,
    processor_seconds: float,
) -> TraceResult:
    requests = {name: len(trace) for name, trace in traces.items()}
    reads = sum(trace.reads for trace in traces.values())
    complete = figures["reads_returned"] == reads and all(
        figures[f"{name}_columns"] == count for name, count in requests.items()
    )
    return TraceResult(
        requests=sum(requests.values()),
        reads=reads,
        cycles=max(figures[f"{name}_cycles"] for name in STREAMS),
        seconds=seconds,
        processor_seconds=processor_seconds,
        result=Rule(figures["rule"]).name if figures["violation"] else "no violation",
        passed=complete and not figures["violation"],
        figures=figures,
        read_latency=read_latency,
    )


def play(executable: Path, traces: Mapping[str, Trace], control: int, limit: int = 0) -> TraceResult:
    """Play `traces` (stream -> trace) on `executable` with the arbiter programmed by `control`.

    `limit`: cycles after which the run ends whatever is left (0: none). Raises what
    :func:`sim.simulator.process.failure` makes of a simulator that fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        latencies = Path(folder) / "read_latencies"
        command = [str(executable), f"+control={control:x}", f"+read_latencies={latencies}"]
        for name, trace in traces.items():
            path = Path(folder) / name
            path.write_bytes(trace.records().data)
            command.append(f"+{name}={path}")
        if limit:
            command.append(f"+limit={limit}")
        started, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        processor_seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used
        word = next((line.split()[1] for line in outcome.stdout.splitlines() if line.startswith("figures ")), "")
        wrong = outcome.returncode or not word or set(word) - set("0123456789abcdef")
        # What SystemVerilog writes, it writes without a word when the disk is full.
        if wrong or disk_is_full(Path(folder)):
            said = outcome.stdout + outcome.stderr
            raise failure("the simulator of the channel", outcome.returncode, said, Path(folder))
        read_latency = latency_figures(read_latencies([Path(f"{latencies}0.txt")]))
    bits = int(word, 16)
    figures = {name: bits >> field.offset & (1 << field.width) - 1 for name, field in TraceFigures}
    return _result(traces, figures, read_latency, seconds, processor_seconds)
