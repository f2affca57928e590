"""One run as a static page: space-time diagram, bandwidth stack, queue occupancy. One file without scripts."""

import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from hw.config import SECTOR_BYTES
from sim.experiments.results import Result
from sim.experiments.timeline import Mark, Timeline
from sim.files import replaced

WIDTH, LEFT, RIGHT = 1000, 70, 12
"""Of a drawing, in its own units; a browser scales it to the width of the page."""
MOST_MARKS = 4000
"""Marks that a drawing shows of one kind; of more, every so many-th."""
COLOURS = ("#0072B2", "#7FB8DA", "#D58A00", "#F5CE74", "#007A58", "#7CCDB3", "#CC79A7", "#8C8C8C")
TILE, BLOCK, ARROW, STAGE = "#0072B2", "#E69F00", "#8C8C8C", "#7CCDB3"
STYLE = """
body { font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1c2733; background: #f4f6f8; margin: 0; }
main { max-width: 1100px; margin: 0 auto; padding: 16px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 0; }
section { background: white; border: 1px solid #dfe4e9; border-radius: 8px; padding: 12px; margin-top: 16px; }
svg { display: block; width: 100%; height: auto; } p { margin: 4px 0; } .scroll { overflow-x: auto; }
.scroll svg { min-width: 640px; } .key { display: inline-block; margin-right: 14px; white-space: nowrap; }
.key i { display: inline-block; width: 12px; height: 12px; margin-right: 5px; border-radius: 2px; }
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #5b6875; }
"""


def write_page(path: Path, timeline: Timeline, result: Result) -> None:
    """Write the page of `timeline` and the figures of its `result`."""
    with replaced(path) as draft:
        draft.write_text(page(timeline, result), encoding="utf-8")


def page(timeline: Timeline, result: Result) -> str:
    """The page's text."""
    last = max([int(result["cycles"]), *(mark.end for mark in timeline.marks)])
    name = html.escape(str(result["spec"]["name"]))
    state = "every check passed" if result["passed"] else "FAILED: " + html.escape("; ".join(result["errors"]))
    sections = [
        (
            "Space and time",
            _keys(
                {
                    "stage or kernel of the compute units": STAGE,
                    "last commit of a WF tile": TILE,
                    "DMA block": BLOCK,
                    "from its cause to its effect": ARROW,
                }
            ),
            _space_time(timeline, last),
        ),
        ("Bandwidth of GPU 0", *_bandwidth(result, last)),
        ("Requests in the DRAM queues", "One line a channel and GPU.", _occupancy(timeline, last)),
    ]
    body = "".join(
        f'<section><h2>{title}</h2><p>{told}</p><div class="scroll">{drawing}</div></section>'
        for title, told, drawing in sections
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>T3-RTL: {name}</title><style>{STYLE}</style></head><body><main>
<h1>{name}</h1><p>{_simulated(timeline, result)}, {result["cycles"]:,} cycles of 1 ns; {state}.</p>
{body}</main></body></html>
"""


def _simulated(timeline: Timeline, result: Result) -> str:
    """How many GPUs are drawn, and for how many they stand."""
    ranks = result["spec"]["gpus"]
    return f"{ranks} GPUs simulated" if timeline.gpus == ranks else f"{timeline.gpus} of {ranks} GPUs simulated"


def _keys(colours: dict[str, str]) -> str:
    return "".join(
        f'<span class="key"><i style="background:{colour}"></i>{text}</span>' for text, colour in colours.items()
    )


def _thinned(marks: Sequence[Mark]) -> Sequence[Mark]:
    return marks[:: max(1, -(-len(marks) // MOST_MARKS))]


def _x(cycle: float, last: int) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * cycle / max(last, 1), 1)


def _drawing(height: int, last: int, parts: Iterator[str] | Sequence[str]) -> str:
    """A drawing over time, its axis below."""
    ticks = "".join(
        f'<line x1="{_x(at, last)}" y1="0" x2="{_x(at, last)}" y2="{height}" stroke="#dfe4e9"/>'
        f'<text x="{_x(at, last)}" y="{height + 15}" text-anchor="middle">{at:,}</text>'
        for at in range(0, last + 1, _step(last))
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height + 32}" role="img">{ticks}{"".join(parts)}'
        f'<text x="{WIDTH - RIGHT}" y="{height + 29}" text-anchor="end">cycle</text></svg>'
    )


def _step(last: int, most: int = 6) -> int:
    """A round distance (1, 2 or 5 and zeros) that gives at most so many ticks."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if last / (digit * power) <= most:
                return digit * power
        power *= 10


def _space_time(timeline: Timeline, last: int) -> str:
    row = 46 if timeline.gpus <= 8 else 24

    def middle(rank: int) -> float:
        return row * rank + row / 2

    def parts() -> Iterator[str]:
        begins: dict[int, Mark] = {}
        for mark in timeline.marks:
            for arrow in mark.effects:
                begins[arrow] = mark
        arrows = [(begins[number], mark) for mark in timeline.marks for number in mark.causes if number in begins]
        between = [(cause, effect) for cause, effect in arrows if cause.rank != effect.rank]
        for cause, effect in between[:: max(1, -(-len(between) // MOST_MARKS))]:
            leaves = _x(min(cause.end, effect.begin), last)
            yield (
                f'<line x1="{leaves}" y1="{middle(cause.rank)}" x2="{_x(effect.begin, last)}" '
                f'y2="{middle(effect.rank)}" stroke="{ARROW}" stroke-width="0.6" opacity="0.5"/>'
            )
        for rank in range(timeline.gpus):
            yield f'<text x="4" y="{middle(rank) + 4}">GPU {rank}</text>'
            for mark in _thinned(timeline.on(rank, "stages")):
                yield _bar(mark, last, middle(rank) - row / 3, 4, STAGE)
            for mark in _thinned(timeline.on(rank, "DMA blocks")):
                yield _bar(mark, last, middle(rank), 8, BLOCK)
            for mark in _thinned(timeline.on(rank, "last commits")):
                yield f'<circle cx="{_x(mark.end, last)}" cy="{middle(rank)}" r="2" fill="{TILE}"/>'

    return _drawing(row * timeline.gpus, last, parts())


def _bar(mark: Mark, last: int, middle: float, height: int, colour: str) -> str:
    """A slice that says what it is where a pointer rests on it, with a gap to the next one where there is room."""
    width = max(1.0, _x(mark.end, last) - _x(mark.begin, last) - 1)
    return (
        f'<rect x="{_x(mark.begin, last)}" y="{middle - height / 2:.1f}" width="{width:.1f}" height="{height}" '
        f'fill="{colour}"><title>{html.escape(mark.name)}: {mark.begin:,} to {mark.end:,}</title></rect>'
    )


def _bandwidth(result: Result, last: int, height: int = 180) -> tuple[str, str]:
    """What it says, and the stack of sectors by kind."""
    sampled = result["timeline"]
    window = sampled["window"]
    kinds = {name: counts for name, counts in sampled.items() if name not in ("window", "occupancy") and any(counts)}
    totals = [sum(values) for values in zip(*kinds.values())] or [0]
    most = max(*totals, 1)
    floor = [0.0] * len(totals)
    parts = []
    for (name, counts), colour in zip(kinds.items(), COLOURS * 2):
        top = [low + count for low, count in zip(floor, counts)]
        # The mean of a window holds for all of it.
        line, back = (
            [(min(at * window, last), value) for n, value in enumerate(edge) for at in (n, n + 1)]
            for edge in (top, floor)
        )
        points = " ".join(f"{_x(at, last)},{height - height * value / most:.1f}" for at, value in (*line, *back[::-1]))
        parts.append(f'<polygon points="{points}" fill="{colour}"><title>{name}</title></polygon>')
        floor = top
    parts.append(f'<text x="4" y="12">{most * SECTOR_BYTES / window:.1f} GB/s</text>')
    colours = {name.replace("_", " "): colour for name, colour in zip(kinds, COLOURS * 2)}
    return _keys(colours) or "No sector moved.", _drawing(height, last, parts)


def _occupancy(timeline: Timeline, last: int, height: int = 140) -> str:
    curves = [curve for curve in timeline.curves if curve.track.startswith("DRAM queue")]
    most = max([1, *(int(curve.values.max()) for curve in curves if len(curve.values))])
    parts = [f'<text x="4" y="12">{most}</text>']
    for number, curve in enumerate(curves):
        stride = max(1, -(-len(curve.cycles) // MOST_MARKS))
        times, values = curve.cycles[::stride].tolist(), curve.values[::stride].tolist()
        # A value holds until the next one.
        steps = ((at, value) for value, *span in zip(values, times, [*times[1:], last]) for at in span)
        points = " ".join(f"{_x(at, last)},{height - height * value / most:.1f}" for at, value in steps)
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="0.8" opacity="0.8"/>')
    return _drawing(height, last, parts)
