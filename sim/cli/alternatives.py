"""`t3rtl alternatives`: the Tracker built otherwise, what each saves in hardware and what it loses on workloads.

A slice of one channel sees a 32nd of every WF tile, so that a counter of b bits counts there, in bytes, what one of b
bits counts in sectors on the whole GPU. Source: T3 section 4.2.1 (256 sets, 8 ways, 19 KB).
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import typer

from hw.config import SECTOR_BYTES
from hw.synthesis.alternatives import COUNTER_BITS, PAPER, VARIANTS, configurations, measure_variant
from sim.cli import options
from sim.cli.sweep import STORE
from sim.cli.terminal import finish, print_error, refuse, stages
from sim.errors import check_processes, chosen
from sim.experiments.catalogue import layer
from sim.files import check_folder, replaced
from sim.simulator.checkout import commit
from sim.simulator.prerequisites import require_simulator

WORKLOADS = ("t-nlg/fc-2/tp8", "t-nlg/op/tp16", "mega-gpt-2/fc-1/tp16", "mega-gpt-2/op/tp16", "h200/tnlg_fc2_tp8")
"""GEMM longer than the reduce-scatter, reduce-scatter longer, the largest output twice, and one as a GPU ran it."""
VARIANT = "t3-mca"
UNSIMULATED = ("no tags, 256 WGs", *(f"counters of {bits} bits" for bits in COUNTER_BITS[1:]))
"""A table of 256 WGs refuses the tiles of all others: it is there for its area. What the narrowest counter loses, wider
ones do not."""
SIMULATED = tuple(name for name in VARIANTS if name not in UNSIMULATED)
COMMITTED = Path(__file__).resolve().parents[2] / "hw/synthesis/ALTERNATIVES.md"
UPDATES = 2
"""Updates per element that a tile waits for: its own GEMM's and the neighbour's."""
PAPER_BYTES = 19_456

Losses = dict[str, Any]
"""cycles, evictions, refetches, stall_cycles, peak_occupancy and errors of one run."""


def simulate_variant(name: str, workload: str) -> Losses:
    """The workload under :data:`VARIANT`, mirrored, on nodes whose Tracker is variant `name`.

    Other ways alone make a point like those of `t3rtl report`, and are shared with it.
    """
    from sim.experiments.experiment import run_experiment, source_version
    from sim.experiments.store import PointStore

    changes = VARIANTS[name]
    ways = {item: value for item, value in changes.items() if item == "tracker_ways"}
    if changes == ways:
        spec = layer(workload, VARIANT, **ways)
        store = PointStore(STORE, source_version())
        result = store.load(spec)
        if result is None:
            result = run_experiment(spec)
            store.save(spec, result)
    else:
        others = {item: value for item, value in changes.items() if item not in ways}
        # Room for 16 GPUs, whatever the workload: a variant is compiled once.
        result = run_experiment(layer(workload, VARIANT, **ways, settings=(("ranges", 32), *others.items())))
    counts = {key: result["tracker"][key] for key in ("evictions", "refetches", "stall_cycles", "peak_occupancy")}
    return {"cycles": result["cycles"], **counts, "errors": result["errors"]}


def tile_bytes(workload: str) -> tuple[int, int, int, int]:
    """(largest, smallest) bytes of a WF tile of the whole GPU's GEMM, the bytes in a row of the smallest, and its
    workgroups in all."""
    from sim.experiments.kernel_model import sublayer_of
    from sim.workloads.sublayer import ELEMENT_BYTES, TILE, WFS

    sublayer = sublayer_of(layer(workload, VARIANT))
    rows = TILE // WFS
    narrow = (sublayer.n % TILE or TILE) * ELEMENT_BYTES
    return TILE * ELEMENT_BYTES * rows, narrow * rows, narrow, sublayer.gpus * sublayer.workgroups


def area_table(figures: dict[str, dict[str, Any]]) -> list[str]:
    """Storage and control of every variant, as lines of Markdown; a dash where `figures` has none."""
    base = figures.get(PAPER)
    lines = [
        "| Tracker | counters, B | against the paper's | memory bits in all | control, gate equivalents "
        "| against the paper's | FO4 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, config in configurations().items():
        storage, item = config.tracker_bytes, figures.get(name)
        measured = "- | - | - | -"
        if item is not None:
            share = "-" if base is None else _share(item["gate_equivalents"], base["gate_equivalents"])
            measured = f"{item['memory_bits']:,} | {item['gate_equivalents']:,} | {share} | {item['fo4']:.1f}"
        lines.append(f"| {name} | {storage:,} | {_share(storage, PAPER_BYTES)} | {measured} |")
    return lines


def loss_table(losses: dict[tuple[str, str], Losses]) -> list[str]:
    """What each run lost, workload by workload, as lines of Markdown; a variant that did not run has no line."""
    lines = [
        "| workload | Tracker | peak entries | evictions | refetches | cycles a commit waited | cycles "
        "| against the paper's |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for workload in dict.fromkeys(workload for _, workload in losses):
        base = losses.get((PAPER, workload))
        for name in VARIANTS:
            run = losses.get((name, workload))
            if run is None:
                continue
            share = "" if base is None else _share(run["cycles"], base["cycles"], 2)
            lines.append(
                f"| {workload} | {name} | {run['peak_occupancy']:,} | {run['evictions']:,} | {run['refetches']:,} "
                f"| {run['stall_cycles']:,} | {run['cycles']:,} | {share} |"
            )
    return lines


def fit_table(workloads: Iterable[str] = WORKLOADS) -> list[str]:
    """Which counters hold a WF tile of each workload's 128 x 128 tiles, as lines of Markdown."""
    lines = [
        "| workload | WGs | WF tile, B | threshold, B | in sectors | "
        + " | ".join(f"{bits} bits: B, sectors" for bits in COUNTER_BITS)
        + " |",
        "|---|--:|--:|--:|--:|" + "---|" * len(COUNTER_BITS),
    ]
    for workload in workloads:
        largest, smallest, row, workgroups = tile_bytes(workload)
        threshold = largest * UPDATES
        whole = row % SECTOR_BYTES == 0
        fits = []
        for bits in COUNTER_BITS:
            in_bytes = threshold < 1 << bits
            in_sectors = whole and threshold // SECTOR_BYTES < 1 << bits
            fits.append(f"{'yes' if in_bytes else 'no'}, {'yes' if in_sectors else 'no'}")
        tile = f"{largest:,}" if largest == smallest else f"{largest:,} (last column {smallest:,})"
        lines.append(
            f"| {workload} | {workgroups:,} | {tile} | {threshold:,} | {threshold // SECTOR_BYTES:,} | "
            + " | ".join(fits)
            + " |"
        )
    return lines


def _share(value: float, base: float, digits: int = 1) -> str:
    return f"{100 * (value / base - 1):+.{digits}f} %"


def synthesis_version() -> str:
    """Digest of every source that the area of a variant depends on."""
    from sim.simulator.sources import modules_reached

    digest = hashlib.sha256()
    for path in sorted(modules_reached("hw.synthesis.alternatives")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Measured:
    """Results in `folder`, one JSON file each; those of other sources do not count."""

    def __init__(self, folder: Path):
        from sim.experiments.experiment import source_version

        self._folder = folder
        self._versions = {"area": synthesis_version(), "run": source_version()}

    def get(self, kind: str, *names: str) -> Any:
        """The result of `kind` called `names`, None when there is none."""
        path = self._path(kind, *names)
        if not path.exists():
            return None
        entry = json.loads(path.read_text())
        return entry["result"] if entry["sources"] == self._versions[kind] else None

    def keep(self, result: Any, kind: str, *names: str) -> None:
        """Write the result of `kind` called `names`."""
        with replaced(self._path(kind, *names)) as draft:
            draft.write_text(json.dumps({"sources": self._versions[kind], "result": result}, indent=1) + "\n")

    def _path(self, *names: str) -> Path:
        letters = ("".join(letter if letter.isalnum() else "_" for letter in name) for name in names)
        return self._folder / f"{'-'.join(letters)}.json"


def measure_one(names: Sequence[str], out: Path) -> dict[str, Any]:
    """What `names` calls for: ("area", variant) or ("run", variant, workload)."""
    if names[0] == "area":
        return measure_variant(names[1], out / "synth").to_json()
    return simulate_variant(*names[1:])


def alternatives(
    context: typer.Context,
    variant: Annotated[list[str] | None, typer.Option(help="Only this Tracker; repeatable.", metavar="NAME")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Only on this one; repeatable.", metavar="NAME")] = None,
    area: Annotated[bool, typer.Option(help="Synthesize.")] = True,
    simulate: Annotated[bool, typer.Option(help="Simulate the workloads.")] = True,
    processes: options.Processes = 2,
    out: Annotated[Path, typer.Option(help="Folder of what was measured; nothing is measured twice.")] = Path(
        "build/alternatives"
    ),
    record: Annotated[bool, typer.Option(help="Write hw/synthesis/ALTERNATIVES.md.")] = False,
) -> None:
    """The Tracker with other ways, counters, or no tags: gates, bits, FO4; evictions, refetches, stalls, cycles.

    The tables show all that was measured on these sources, now or before.

    Example: t3rtl alternatives --variant "256 sets, 4 ways" --workload t-nlg/op/tp16
    """
    variants = chosen("variant", variant or (), tuple(VARIANTS), tuple(VARIANTS))
    workloads = chosen("workload", workload or (), WORKLOADS, WORKLOADS)
    check_processes(processes)
    check_folder(out)
    if not simulate:
        refuse(context, "nothing is simulated", "workload")
        if not area:
            refuse(context, "nothing is measured", "variant", "processes")
    if simulate:
        require_simulator()
    from hw.synthesis.mapping import SynthesisError

    out.mkdir(parents=True, exist_ok=True)
    measured = Measured(out)
    wanted: list[tuple[str, ...]] = [("area", name) for name in variants if area]
    wanted += [("run", name, item) for item in workloads for name in variants if simulate and name in SIMULATED]
    wanted = [names for names in wanted if measured.get(*names) is None]
    with stages("alternatives") as progress, ProcessPoolExecutor(processes) as pool:
        work = {pool.submit(measure_one, names, out): names for names in wanted}
        for number, future in enumerate(as_completed(work), 1):
            try:
                measured.keep(future.result(), *work[future])
            except SynthesisError as error:
                pool.shutdown(cancel_futures=True)
                print_error(str(error))
                finish(False)
            progress(f"{number} of {len(work)} measured, the last: {' on '.join(work[future][1:])}")
    figures = {name: found for name in VARIANTS if (found := measured.get("area", name))}
    losses = {
        (name, item): found for item in WORKLOADS for name in VARIANTS if (found := measured.get("run", name, item))
    }
    lines = [*area_table(figures), "", *loss_table(losses), "", *fit_table()]
    lacking = [f"area of {name}" for name in VARIANTS if name not in figures]
    lacking += [f"{name} on {item}" for item in WORKLOADS for name in SIMULATED if (name, item) not in losses]
    if lacking:
        lines += ["", f"Not measured: {'; '.join(lacking)}."]
    for line in lines:
        typer.echo(line)
    wrong = [f"{' on '.join(key)}: {text}" for key, run in losses.items() for text in run["errors"]]
    for text in wrong:
        print_error(text)
    if record and not wrong:
        record_tables(lines)
    finish(not wrong)


BEGIN, END = "<!-- measured by `t3rtl alternatives --record` -->", "<!-- end of what was measured -->"


def record_tables(lines: list[str], path: Path = COMMITTED) -> None:
    """Put `lines` between the marks in the committed page, with the commit they were measured at."""
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    text = "\n".join([f"Measured at commit {commit()}.", "", *lines])
    with replaced(path) as draft:
        draft.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
