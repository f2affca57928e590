"""What a campaign says: a table by class, by block, the worst registers, and `summary.json`."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sim.faults.campaign import Finished, Options, command, protected
from sim.faults.injections import CLASSES, TITLES, Space
from sim.faults.outcomes import CONFIDENCE, HANG, OUTCOMES, SILENT, interval, margin, sample_size
from sim.faults.places import block_of

WORST = 10
"""Registers of each class that are named."""
MARGIN = 0.01
"""The margin for which the number of injections is told that Leveugle's formula asks for."""


def counted(results: Sequence[Finished], population: int = 0) -> dict[str, Any]:
    """How many injections ended how, and the interval of the share that is silent or hangs; it is known where they are
    all that are possible, the `population`."""
    found = Counter(item.outcome for item in results)
    bad = found[SILENT] + found[HANG]
    share = bad / len(results) if results else 0.0
    low, high = (share, share) if len(results) == population else interval(bad, len(results))
    return {
        "injections": len(results),
        **{name: found[name] for name in OUTCOMES},
        "wrong_result": sum(item.outcome == SILENT and _wrong_result(item) for item in results),
        "silent_or_hang": {"share": share, "low": low, "high": high},
    }


def _wrong_result(item: Finished) -> bool:
    """Of what is silent: data is wrong, not only a register."""
    return bool(item.facts.wrong_sectors) or item.facts.harmed


def summarize(options: Options, space: Space, results: Sequence[Finished]) -> dict[str, Any]:
    """What is found in `results`, for `summary.json` (see :data:`FIELDS`)."""
    by_class = {name: [item for item in results if item.injection.name == name] for name in CLASSES}
    classes, blocks = {}, {}
    for name, found in by_class.items():
        if not found:
            continue
        population = space.population(name)
        classes[name] = {
            "title": TITLES[name],
            "protected": name in protected(options),
            **counted(found, population),
            "population": population,
            "margin": margin(population, len(found)),
            "injections_for_margin": sample_size(population, MARGIN),
        }
        parts: dict[str, list[Finished]] = defaultdict(list)
        for item in found:
            parts[item.injection.block].append(item)
        blocks[name] = {block: counted(part) for block, part in sorted(parts.items()) if block}
    return {
        "confidence": CONFIDENCE,
        "margin_for": MARGIN,
        "cycles": [list(span) for span in space.spans],
        "classes": classes,
        "blocks": blocks,
        "worst": worst(results),
        "longest_abort_cycles": max((item.facts.drained for item in results), default=0),
        "failures": [
            {
                "class": item.injection.name,
                "outcome": item.outcome,
                "injection": item.injection.text,
                "command": command(options, item.injection),
            }
            for item in failures(options, results)
        ],
    }


def failures(options: Options, results: Sequence[Finished]) -> list[Finished]:
    """Injections into what is protected that got through."""
    return [item for item in results if item.injection.name in protected(options) and item.failed]


def worst(results: Sequence[Finished], count: int = WORST) -> list[dict[str, Any]]:
    """Of each class the variables whose bits, when flipped, were most often silent or ended in a hang; a share of more
    injections goes first."""
    by_place: dict[str, list[Finished]] = defaultdict(list)
    for item in results:
        if item.place and block_of(item.place):
            by_place[item.place].append(item)
    rows = [
        {"variable": place, "class": found[0].injection.name, "block": block_of(place), **counted(found)}
        for place, found in by_place.items()
    ]
    rows = [row for row in rows if row["silent"] + row["hang"]]
    rows.sort(key=lambda row: (-row["silent_or_hang"]["low"], -row["injections"], row["variable"]))
    by_class = {name: [row for row in rows if row["class"] == name] for name in CLASSES}
    return [row for found in by_class.values() for row in found[:count]]


FIELDS: Mapping[str, str] = {
    "classes": "by class of injection how many there were, how they ended, and what share was silent or hung, with its "
    "interval; `wrong_result`: of the silent ones, those in which data was wrong, not only a register",
    "blocks": "the same by class and block",
    "worst": "by class, registers and memories of which a flipped bit was silent or hung most often",
    "failures": "injections into what is protected that were silent or hung, with the command that repeats each",
    "longest_abort_cycles": "from an abort until nothing of its epoch was left anywhere, the longest that was seen",
}
"""What `summary.json` holds beside spec, commit, command, seed and speed."""


def table(classes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Lines for a terminal, a class each."""
    head = f"{'class':20} {'injections':>10} " + " ".join(f"{name:>9}" for name in OUTCOMES)
    lines = [f"{head}  silent or hang, {CONFIDENCE:.0%} interval"]
    for name, row in classes.items():
        share = row["silent_or_hang"]
        counts = " ".join(f"{row[item]:9,}" for item in OUTCOMES)
        reach = f"{share['low']:.2%} to {share['high']:.2%}"
        lines.append(f"{name:20} {row['injections']:10,} {counts}  {share['share']:7.2%}  {reach}")
    return lines
