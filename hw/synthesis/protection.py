"""What protection costs, mechanism by mechanism: area, memory, longest path, cycles."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..config import PRESETS, Configuration
from ..protection import ALL, LEVELS, LINKS, NONE
from .report import Summary

NODE = "node"
TABLE = Path(__file__).with_name("PROTECTION.md")


@dataclass(frozen=True)
class Mechanism:
    """`name` in `block`, which is built with protection `before` without it, and `after` with it; `cycles`: what it
    takes of a clean access, and of others."""

    name: str
    block: str
    before: str
    after: str
    cycles: str


MECHANISMS = (
    Mechanism("CRC of flits and messages, sequence numbers, replay", "link_lane", NONE, LINKS, "none on a clean link"),
    Mechanism(
        "check bits of counters, trigger table, ready blocks, spilled counters",
        "tracker",
        LINKS,
        ALL,
        "none; 3 of a counter that comes back from the backing store",
    ),
    Mechanism(
        "parity of sectors in queues and store of a channel, checked at its DRAM, and of all that waits beside them",
        "memory_controller",
        LINKS,
        ALL,
        "none of the sector; its commit WL cycles later (2), when its data is on the bus",
    ),
    Mechanism(
        "parity of sectors made as stores come in, of what waits beside them, of its copies of ranges and sends",
        "address_map",
        LINKS,
        ALL,
        "none",
    ),
    Mechanism(
        "parity of sectors in packet slots, flits, receive buffers, of the rest of a packet and of descriptors, of its "
        "copies of ranges and sends",
        "link_lane",
        LINKS,
        ALL,
        "none",
    ),
    Mechanism("parity of blocks that wait, of its copies of ranges and sends", "dma_engine", LINKS, ALL, "none"),
    Mechanism("parity of its copies of ranges", "memory_clear", LINKS, ALL, "none"),
    Mechanism(
        "parity of sectors of remote stores that wait, and of all beside them", "store_packetizer", LINKS, ALL, "none"
    ),
    Mechanism("check bits of addresses of reads on their way", "near_bank", LINKS, ALL, "none"),
    Mechanism(
        "check bits of the tables of ranges and sends; counts, places, interrupt, scrubbing, self test",
        "register_file",
        LINKS,
        ALL,
        "none of an access; a word that is written is in the blocks a cycle later, the first of a doorbell too",
    ),
)


def levels() -> dict[str, Configuration]:
    """Preset `paper` with each level of protection, by a name that can be a folder's."""
    return {name_of(level): replace(PRESETS["paper"], protection=level) for level in LEVELS}


def name_of(level: str) -> str:
    """Of a configuration of :func:`levels`."""
    return f"paper-{level}"


def blocks() -> list[str]:
    """Blocks with a mechanism in them."""
    return list(dict.fromkeys(mechanism.block for mechanism in MECHANISMS))


def in_all(summary: Summary, names: Sequence[str], what: str) -> str:
    """What `what`, the blocks `names`, takes at each level, and its longest path."""
    per_level = [[summary[name_of(level)][block] for block in names] for level in LEVELS]
    gates = [sum(found["gate_equivalents"] for found in level) for level in per_level]
    bits = [sum(found["memory_bits"] for found in level) for level in per_level]
    paths = [max(found["fo4"] for found in level) for level in per_level]
    shares = [f"{100 * (total - gates[0]) / gates[0]:+.1f} %" for total in gates]
    told = [
        f"`{level}` {total:,} gate equivalents" + (f" ({share})" if level != NONE else "")
        for level, total, share in zip(LEVELS, gates, shares, strict=True)
    ]
    longest = ", ".join(f"{path:.1f}" for path in paths)
    more = 100 * (bits[-1] - bits[0]) / bits[0]
    return (
        f"{what} with {', '.join(told)}; memories {more:+.1f} % bits with `{ALL}`. "
        f"Longest path, in this order: {longest} FO4."
    )


def table(summary: Summary) -> list[str]:
    """A Markdown table of the mechanisms whose block is in `summary`, a row each; before it what all take, if all are
    there, and what the node takes, if it is."""
    told = [(blocks(), "In all, these blocks take"), ([NODE], f"The `{NODE}`, all but the near-bank unit, takes")]
    complete = [
        in_all(summary, names, what)
        for names, what in told
        if all(block in summary[name_of(level)] for level in LEVELS for block in names)
    ]
    lines = [
        *(line for text in complete for line in (text, "")),
        "| mechanism | block | gate equivalents | memory bits | FO4 | cycles |",
        "|---|---|--:|--:|--:|---|",
    ]
    for item in MECHANISMS:
        before = summary[name_of(item.before)].get(item.block)
        after = summary[name_of(item.after)].get(item.block)
        if before is None or after is None:
            continue
        costs = (
            f"{old:,} -> {new:,} ({100 * (new - old) / old:+.1f} %)" if old else f"{new:,}"
            for old, new in ((before[key], after[key]) for key in ("gate_equivalents", "memory_bits"))
        )
        path = f"{before['fo4']:.1f} -> {after['fo4']:.1f}"
        levels_told = f"{item.block}, {item.before} -> {item.after}"
        lines.append(f"| {item.name} | {levels_told} | {' | '.join(costs)} | {path} | {item.cycles} |")
    return lines
