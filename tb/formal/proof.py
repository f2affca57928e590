"""What a proof is, and the list of all of them."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

from tb.formal.bench import Bench


@dataclass(frozen=True)
class Proof:
    """One property of one block.

    `block` is the name of its module (the coverage page's name). `engine`: `k-induction` (unbounded, `depth` steps),
    `pdr` (unbounded, no invariants) or `bmc` (bounded: `depth` cycles from reset). `scope`: parameters the block was
    reduced to, and what is assumed. `cover_depth`: cycles within which every cover of the bench is reached. `bug`: what
    the seeded bug is; a claim fails on it within `bug_depth` cycles. `time_limit`: of each of the runs, in seconds.
    """

    name: str
    block: str
    claim: str
    build: Callable[[Bench], None] = field(repr=False)
    engine: str
    depth: int
    scope: str
    cover_depth: int
    bug: str
    bug_depth: int
    time_limit: float = 300

    @property
    def mode(self) -> str:
        return "bounded" if self.engine == "bmc" else "unbounded"


PROOFS: dict[str, Proof] = {}


def proof(
    *,
    block: str,
    claim: str,
    scope: str,
    bug: str,
    bug_depth: int,
    cover_depth: int,
    engine: str = "k-induction",
    depth: int = 2,
    time_limit: int = 300,
) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Registers a function that fills a bench as the proof of that name."""

    def register(build: Callable[[Bench], None]) -> Callable[[Bench], None]:
        name = build.__name__
        if name in PROOFS:
            raise ValueError(f"two proofs are called {name}")
        PROOFS[name] = Proof(
            name=name,
            block=block,
            claim=claim,
            build=build,
            engine=engine,
            depth=depth,
            scope=scope,
            cover_depth=cover_depth,
            bug=bug,
            bug_depth=bug_depth,
            time_limit=time_limit,
        )
        return build

    return register


MODULES = (
    "secded",
    "protected_words",
    "queues",
    "memory_watch",
    "arbiter",
    "coalescer",
    "doorbell",
    "refresh",
    "epochs",
    "lanes",
    "isolation",
    "link_isolation",
    "clear_isolation",
    "tracker_clear",
    "link_slots",
    "link_replay",
    "trigger_table",
    "tile_geometry",
    "bank_machine",
    "dram_queue",
    "tracker",
)
"""Modules of this package that hold proofs, the longest last."""


def all_proofs() -> dict[str, Proof]:
    """Every proof by name."""
    for name in MODULES:
        importlib.import_module(f"tb.formal.{name}")
    return PROOFS
