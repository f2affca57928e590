"""A program as a picture: which chunk each GPU writes in which round, and where it came from."""

from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sim.collectives.inputs import blank
from sim.collectives.interpret import Event, interpret
from sim.collectives.program import Program
from sim.report.style import BLUE, DPI, GREEN, GREY, ORANGE, PALE, PURPLE, SKY, VERMILION, WIDTH

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY, "#6B4C2A")
DARK = (BLUE, GREEN, VERMILION, PURPLE, GREY, "#6B4C2A")
"""Colours that want white text."""
LOCAL, ARRIVING, DOORBELL = "s", "o", "D"
ROOM = 0.8
"""Of a GPU's line, what the marks of one round may fill."""
Place = tuple[float, float]


def space_time(program: Program, topology: str) -> Figure:
    """GPUs one below the other, rounds from left to right: a mark for each chunk that is written or made complete by a
    doorbell, with its number, and a line from where it was sent. All ranks go on in step (:func:`interpret`)."""
    events = list(dict.fromkeys(interpret(program, blank(program)).events))
    crowd = max(len(cell) for cell in _cells(events).values())
    height = min(16.0, 1.6 + program.gpus * max(0.45, 0.16 * crowd))
    drawing = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    axis = drawing.subplots()
    places = _places(events)
    for event, place in places.items():
        _draw(axis, program, event, place, crowd)
    axis.set_yticks(range(program.gpus), [f"rank {rank}" for rank in range(program.gpus)])
    axis.invert_yaxis()
    axis.set_xticks(range(max(event.step for event in events) + 1))
    axis.set_xlabel("round: what is sent in one arrives in the next")
    axis.grid(visible=False)
    for rank in range(program.gpus):
        axis.axhline(rank, color=PALE, linewidth=0.6, zorder=0)
    axis.set_title(f"{program.name}, {program.gpus} GPUs, {topology}", loc="left")
    _legend(drawing, program, events)
    return drawing


def _cells(events: Sequence[Event]) -> dict[tuple[int, int], list[Event]]:
    """What each rank does in each round."""
    cells = defaultdict(list)
    for event in events:
        cells[event.step, event.rank].append(event)
    return cells


def _places(events: Sequence[Event]) -> dict[Event, Place]:
    """Where each mark stands: those of one rank and round one below the other."""
    places: dict[Event, Place] = {}
    for (step, rank), cell in _cells(events).items():
        for index, event in enumerate(cell):
            places[event] = step, rank + ROOM * ((index + 0.5) / len(cell) - 0.5)
    return places


def _kind(program: Program, event: Event) -> str:
    if event.sender is not None:
        return ARRIVING
    rung = any(region.part == event.part and region.doorbell for region in program.regions(event.rank))
    return DOORBELL if rung else LOCAL


def _draw(axis: Axes, program: Program, event: Event, place: Place, crowd: int) -> None:
    colour = COLOURS[event.part.chunk % len(COLOURS)]
    size = max(5.0, 15.0 - crowd)
    first = event.part.array == program.arrays[0].name
    if event.sender is not None:
        axis.plot([place[0] - 1, place[0]], [event.sender, place[1]], color=colour, linewidth=0.8, alpha=0.6, zorder=1)
    axis.plot(
        *place,
        _kind(program, event),
        markersize=size,
        markerfacecolor=colour if first else "white",
        markeredgecolor=colour,
        markeredgewidth=1.4,
        zorder=2,
    )
    text = "white" if first and colour in DARK else "black"
    axis.text(*place, str(event.part.chunk), ha="center", va="center", fontsize=0.55 * size, color=text, zorder=3)


def _legend(drawing: Figure, program: Program, events: Sequence[Event]) -> None:
    names = {LOCAL: "stored by a kernel", ARRIVING: "arrived", DOORBELL: "doorbell"}
    kinds = {_kind(program, event) for event in events}
    marks = [
        Line2D([], [], linestyle="", marker=kind, color=GREY, label=label)
        for kind, label in names.items()
        if kind in kinds
    ]
    written = {event.part.array for event in events}
    for index, array in enumerate(array.name for array in program.arrays):
        if array in written:
            fill = GREY if index == 0 else "white"
            label = f"{'filled' if index == 0 else 'open'}: {array}"
            marks.append(Line2D([], [], linestyle="", marker="s", color=GREY, markerfacecolor=fill, label=label))
    drawing.legend(handles=marks, loc="outside lower center", ncols=len(marks))
