"""Results as lines for people: a row of a table, and the figures of one run."""

from collections.abc import Sequence

from hw.config import SECTOR_BYTES, TOTAL_CHANNELS
from sim.experiments.results import Result
from sim.experiments.spec import Spec
from sim.experiments.spec_values import KERNELS, TRACE
from sim.simulator.read_latencies import latency_text

COLUMNS = (
    ("scenario", 30),
    ("gpus", 4),
    ("shape", 16),
    ("type", 9),
    ("policy", 18),
    ("cycles", 10),
    ("overlap", 7),
    ("evicted", 8),
    ("result", 7),
)
"""Headings and widths of a row."""
_LEFT = ("scenario", "shape", "type", "policy", "result")


def header() -> str:
    """Headings for the rows of :func:`format_row`."""
    return _line([title for title, _ in COLUMNS])


def format_row(result: Result) -> str:
    """One line of a result."""
    spec = Spec.from_json(result["spec"])
    efficiency = result.get("overlap_efficiency")
    totals = result.get("totals")
    return _line(
        [
            spec.name,
            str(spec.gpus),
            "x".join(map(str, spec.shape)),
            f"{spec.dtype} {spec.op}",
            spec.variant.text,
            f"{result.get('cycles', 0):,}",
            "-" if efficiency is None else f"{100 * efficiency:.0f} %",
            "-" if totals is None else f"{totals['tracker_evictions']:,}",
            "pass" if result["passed"] else "FAIL",
        ]
    )


def _line(cells: list[str]) -> str:
    return "  ".join(
        cell.ljust(width) if title in _LEFT else cell.rjust(width)
        for cell, (title, width) in zip(cells, COLUMNS, strict=True)
    ).rstrip()


def summary(results: Sequence[Result], seconds: float) -> str:
    """The last line of a regression."""
    failed = [result["spec"]["name"] for result in results if not result["passed"]]
    cycles = sum(result.get("cycles", 0) * result["spec"]["gpus"] for result in results)
    text = f"{len(results) - len(failed)} of {len(results)} scenarios pass, {cycles:,} node cycles in {seconds:.0f} s"
    return text + (f"; FAILED: {', '.join(failed)}" if failed else "")


def figure_lines(result: Result) -> list[str]:
    """The figures of one run that are worth a line on the terminal."""
    phases = {name: span for name, span in result["spans"].items() if span}
    sectors = {
        f"{phase} {access}": count
        for phase, counts in result["dram_sectors"].items()
        for access, count in counts.items()
        if count
    }
    tracker, seconds, forms = result["tracker"], result["seconds"], result["closed_forms"]
    wrong = "nothing to compare" if result["mismatches"] is None else f"{result['mismatches']:,} wrong elements"
    latency = result["trigger_latency"]
    figures = {
        "cycles": f"{result['cycles']:,}",
        "phases": ", ".join(f"{name} {begin:,} to {end:,}" for name, (begin, end) in phases.items()),
        **_beside(result),
        "DRAM bandwidth": _bandwidth(result),
        "DRAM sectors per GPU": ", ".join(f"{kind} {count:,}" for kind, count in sectors.items()),
        "closed forms": f"{sum(form['matches'] for form in forms.values())} of {len(forms)} exact",
        "data": wrong,
        "DRAM-queue occupancy": f"mean {result['occupancy_mean']}, peak {result['occupancy_peak']}",
        "link utilisation": _link_utilisation(result),
        **_link_errors(result),
        "Tracker": f"{tracker['hits']:,} hits, {tracker['evictions']:,} evictions, {tracker['refetches']:,} refetches, "
        f"peak {tracker['peak_occupancy']:,} entries, {tracker['triggers']:,} triggers",
        "trigger latency": f"at most {latency} cycles" if latency else "n/a: nothing was sent by DMA",
        "read latency": _read_latency(result),
        "arbiter": _arbiter(result),
        "seconds": f"{seconds['total']:.1f} and build {seconds['build']:.1f} "
        f"({result['kilocycles_per_second']:,.0f} kcycles/s, Python {100 * seconds['python_share']:.1f} %)",
    }
    return [f"  {name:<22}{text}" for name, text in figures.items()]


def _read_latency(result: Result) -> str:
    """Of the compute units: DMA engines read too, and nothing waits for them."""
    if result.get("read_latency"):
        return latency_text(result["read_latency"])
    reads = result["dram_sectors"].get("gemm", {}).get("read")
    return f"n/a: {'more reads under way than there are tags' if reads else 'compute units read nothing'}"


def _arbiter(result: Result) -> str:
    """What it held back; the threshold where there is one."""
    told = result["arbiter"]
    text = f"compute held back {told['held_compute']:,} cycles, communication {told['held_communication']:,}"
    text += f" (one request at most {told['communication_wait_peak']:,}, {told['forced']:,} forced)"
    return text if told["threshold"] is None else f"{text}, threshold {told['threshold']}"


def _link_errors(result: Result) -> dict[str, str]:
    """What happened on links with bit errors."""
    seen = result.get("link_errors")
    if not result["spec"].get("bit_errors") or not seen:
        return {}
    text = f"{seen['flipped_bits']:,} bits wrong, {seen['damaged']:,} flits and messages thrown away"
    return {"link errors": f"{text}, {seen['replays']:,} replays"}


def _link_utilisation(result: Result) -> str:
    if result["link_utilisation"] is not None:
        return f"{100 * result['link_utilisation']:.1f} %"
    busiest = [share for share in result["link_utilisation_by_gpu"] if share is not None]
    if not busiest:
        return "n/a: no reduce-scatter"
    return f"{100 * sum(busiest) / len(busiest):.1f} % of the run, the busiest link of each GPU"


def _bandwidth(result: Result) -> str:
    """Mean over the run, of the whole GPU, and of the most that its column bus moves: a sector a cycle and channel."""
    spec = Spec.from_json(result["spec"])
    sectors = sum(sum(counts.values()) for counts in result["dram_sectors"].values())
    share = sectors / max(result["cycles"], 1) / spec.hardware.channels
    return f"{share * SECTOR_BYTES * TOTAL_CHANNELS:,.0f} GB/s of the GPU, {100 * share:.1f} % of the peak"


def _beside(result: Result) -> dict[str, str]:
    """What GEMM and reduce-scatter take alone, simulated or by the model."""
    if result["spec"]["compute"] in (KERNELS, TRACE):
        return {
            "GEMM by the model": f"{result['analytic_gemm_cycles']:,}",
            "RS on the wire": f"{result['rs_wire_cycles']:,}",
        }
    if "speedup" not in result:
        return {}
    share = result["percent_of_ideal"]
    gained = "n/a: nothing is to be gained" if share is None else f"{share:.0f} % of its gain"
    return {
        "GEMM alone": f"{result['gemm_alone_cycles']:,}",
        "speedup": f"{result['speedup']:.3f} (ideal {result['ideal_speedup']:.3f}, {gained})",
    }
