"""Processes of the simulator that run sequences: each forks for every one of those it is given."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw.messages import Fault
from hw.registers.map import find_register
from sim.sequences.collectives import Collectives, once_commands
from sim.sequences.sequence import CollectiveSequence
from sim.simulator.build_folder import Tell, silent
from sim.simulator.fast_model import build_system
from sim.simulator.fork_server import answers
from sim.simulator.run_folder import run_folder
from sim.simulator.session import SESSION, session_text
from sim.topologies.switch import Switch

BOUND = 10_000
"""Cycles, for each GPU of the topology, that a collective may take on a GPU, and that an abort may take until nothing
of it is left: of the longest collective some times what it takes."""
TIMEOUT = 1 << 20
OK = "ok"
HANGS = ("hang", "hang_after_abort")
UNREWRITTEN, UNTOLD, UNSHUT = "tables are not rewritten", "an abort tells nobody", "gates stay open"
SEEDED = ("", UNREWRITTEN, UNTOLD, UNSHUT)
"""Faults of the software of a sequence, to see that they are found."""


@dataclass(frozen=True)
class Found:
    """What came of a sequence: `verdict`, :data:`OK` or what was wrong with which `item` on which `gpu`, and `detail`,
    a number about it; the most cycles from an abort until a GPU was `drained`; `cycles` in all; `ends` by collective:
    c when all GPUs completed it, a when one was aborted; `lasted`, cycles of each from arming to its end."""

    verdict: str
    item: int
    gpu: int
    detail: int
    drained: int
    cycles: int
    ends: str
    lasted: tuple[int, ...]

    @staticmethod
    def of_line(text: str) -> "Found":
        """As the server writes it."""
        verdict, *numbers, ends, lasted = text.split()
        item, gpu, detail, drained, cycles = map(int, numbers)
        each = () if lasted == "-" else tuple(map(int, lasted.split(",")))
        return Found(verdict, item, gpu, detail, drained, cycles, ends, each)

    def to_json(self) -> dict[str, Any]:
        """Of plain values."""
        return {**vars(self), "lasted": list(self.lasted)}

    @staticmethod
    def of_json(kept: dict[str, Any]) -> "Found":
        """Inverse of :meth:`to_json`."""
        return Found(**{**kept, "lasted": tuple(kept["lasted"])})


def build(known: Collectives, tell: Tell = silent) -> Path:
    """The folder of the simulator."""
    made, wiring = known.build, known.topology
    return build_system(
        made.config,
        made.storage_sectors,
        made.source_sectors,
        plans=True,
        shared=wiring.shared,
        switch_gpus=known.gpus if isinstance(wiring, Switch) else 0,
        tell=tell,
        sequences=True,
    )


def _session(known: Collectives, seeded: str) -> dict[str, Any]:
    config = known.config
    status, control = find_register(config, "status"), find_register(config, "control")
    return {
        "fill": 0,
        "alone": 0,
        "stall": 0,
        "late_cycles": 0,
        "doorbells": 0,
        "timeout": TIMEOUT,
        "phases": {"before": 0},
        "sequences": 1,
        "jobs": len(known.ready),
        "bound": BOUND * known.gpus,
        "seeded": SEEDED.index(seeded),
        "epochs": (1 << config.epoch_bits) - 1,
        "status": status.address,
        **{name: status.field(name).mask for name in ("armed", "done", "aborted", "drained", "idle")},
        "control": control.address,
        **{name: control.field(name).mask for name in ("disarm", "abort")},
        "arm": control.field("arm").mask | control.field("initialised").mask,
        "epoch_register": find_register(config, "epoch").address,
        "fault_record": find_register(config, "fault_record").address,
        "fault": find_register(config, "fault_record").field("fault").mask,
        "left_over": Fault.LEFT_OVER.value,
        "interrupt_status": find_register(config, "interrupt_status").address,
    }


@contextmanager
def prepared(known: Collectives, model: Path, seeded: str = "") -> Iterator[Path]:
    """A folder with what every process reads, which goes away."""
    with run_folder(model) as folder:
        for number, item in enumerate(known.ready):
            item.write(folder / "jobs" / str(number))
        session = session_text(known.config, known.topology, _session(known, seeded), threads=1)
        (folder / SESSION).write_text(session)
        commands = once_commands(known.config, known.gpus)
        (folder / "program.hex").write_text("".join(f"{item:016x}\n" for item in commands))
        yield folder


def run_sequences(
    known: Collectives, model: Path, shared: Path, sequences: Sequence[CollectiveSequence]
) -> Iterator[tuple[CollectiveSequence, Found]]:
    """What comes of each of `sequences`, as soon as it is known, in one process.

    Errors as of :func:`sim.simulator.fork_server.answers`.
    """
    folder = shared / f"process-{time.monotonic_ns()}"
    folder.mkdir()
    for name in (SESSION, "program.hex"):
        shutil.copy(shared / name, folder / name)
    lines = (f"{number} {item.line(known)}\n" for number, item in enumerate(sequences))
    (folder / "sequences.txt").write_text("".join(lines))
    for item, text in answers(model, folder, [], sequences, "sequence"):
        yield item, Found.of_line(text)
