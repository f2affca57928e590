"""All-reduces of decoding: how long a small one takes, where latency counts and not bandwidth.

Eight H200 on an ideal switch. In the memory: 16 compute units read each number once and store it to its owner, whose
memory adds it up, and which reads every sum once and sends it to all others. By kernels: one that copies to the owners,
one that adds up what came, and when they are over one that copies the sums to all others. NCCL's kernels were recorded
for this project with two outputs of training, no smaller ones: a line through these two is what stands beside the small
ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.experiments.catalogue import collective
from sim.experiments.spec import Spec
from sim.report.t3.record import Outcomes, Part, Record, cycles_of, record
from sim.workloads.machines import machine, recorded_all_reduces

MACHINE = "h200"
GPUS = 8
WIRING = "ideal-switch"
UNITS = 16
"""Compute units of a kernel that communicates, as for FLUX."""
ELEMENT_BYTES = 2


@dataclass(frozen=True)
class Message:
    """`rows` x `columns` FP16 numbers that are reduced, in tiles of `tile`: nothing but bytes, so that few tokens stand
    as more rows of fewer columns."""

    rows: int
    columns: int
    tile: tuple[int, int]

    @property
    def bytes(self) -> int:
        """Of one GPU's addend."""
        return self.rows * self.columns * ELEMENT_BYTES

    @property
    def link_us(self) -> float:
        """In which the links of a GPU carry its part of reduce-scatter and all-gather."""
        return 2 * self.bytes * (GPUS - 1) / GPUS / machine(MACHINE).link_gb_per_s / 1000


MESSAGES: Mapping[str, Message] = {
    "tokens-8": Message(64, 1536, (8, 512)),
    "tokens-64": Message(64, 12288, (8, 1024)),
    "tokens-512": Message(512, 12288, (64, 256)),
    "t-nlg": Message(8192, 4256, (128, 256)),
    "mega-gpt-2": Message(16384, 3072, (128, 256)),
}
"""Tokens of GPT-3's width, 12,288 numbers each; and what was recorded."""
REAL_NODES = ("tokens-8", "tokens-64", "tokens-512")
"""Which eight real nodes reduce too."""
WAYS: Mapping[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "memory": (("direct-all-reduce", {"copied": True, "units": UNITS}),),
    "kernels": (
        ("all-to-all-reduce-scatter", {"copied": True, "units": UNITS}),
        ("all-to-all", {"copied": True, "units": UNITS, "alike": True}),
    ),
}
"""The programs of each way, one after another."""


def runs(name: str, way: str, mode: str = "mirrored") -> list[Spec]:
    """What `way` of :data:`WAYS` runs for message `name`."""
    message = MESSAGES[name]
    tail = "" if mode == "mirrored" else "/nodes"
    return [
        collective(
            which,
            GPUS,
            "round-robin",
            wiring=WIRING,
            choices=choices,
            machine=MACHINE,
            shape=(message.rows, message.columns, 0),
            tile=message.tile,
            wfs=min(8, message.tile[0] // 8),
            mode=mode,
            tile_order="interleaved",
            name=f"t3/decode/{name}/{way}/{which}{tail}",
        )
        for which, choices in WAYS[way]
    ]


def points() -> list[Spec]:
    """All that the question needs."""
    return [
        *(spec for name in MESSAGES for way in WAYS for spec in runs(name, way)),
        *(spec for name in REAL_NODES for spec in runs(name, "memory", "ring")),
    ]


def recorded_us(message: Message) -> dict[str, float]:
    """What NCCL takes: `us` where that was recorded, elsewhere `line_us`, on the line through what was."""
    known = recorded_all_reduces()
    here = known.get((message.rows, message.columns))
    if here is not None:
        return {"us": here}
    (less, first), (more, second) = sorted(
        (rows * columns * ELEMENT_BYTES, us) for (rows, columns), us in known.items()
    )
    return {"line_us": first + (second - first) / (more - less) * (message.bytes - less)}


def _us(outcomes: Outcomes, specs: list[Spec]) -> float | None:
    cycles = [cycles_of(outcomes, spec) for spec in specs]
    return (
        None if None in cycles else sum(each for each in cycles if each is not None) * machine(MACHINE).cycle_ns / 1000
    )


def records(outcomes: Outcomes) -> list[Record]:
    """A record of each message. `ours`, in microseconds: in the memory (`us`) and by `kernels_us`; both over what the
    links take. `real`: see :func:`recorded_us`. Then eight real nodes beside one that stands for all."""
    found = []
    for name, message in MESSAGES.items():
        memory, kernels = (_us(outcomes, runs(name, way)) for way in WAYS)
        if memory is None or kernels is None:
            continue
        ours = {"us": memory, "kernels_us": kernels, "over_link": memory / message.link_us}
        ours["kernels_over_link"] = kernels / message.link_us
        (spec,) = runs(name, "memory")
        found.append(
            record(f"t3/decode/{name}", cycles_of(outcomes, spec), ours, {}, recorded_us(message), bytes=message.bytes)
        )
    for name in REAL_NODES:
        (one,), (nodes,) = (runs(name, "memory", mode) for mode in ("mirrored", "ring"))
        alone, eight = cycles_of(outcomes, one), cycles_of(outcomes, nodes)
        if alone is not None and eight is not None:
            found.append(record(nodes.name, eight, {"over_mirrored": eight / alone}))
    return found


PART = Part(points, records)
