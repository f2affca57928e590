"""Stronger gates on the longest paths of a mapped and buffered netlist (TILOS: Fishburn and Dunlop, ICCAD 1985).

Round by round, each path that is nearly as long as the longest gets stronger gates: those whose stage gains most over
what their larger input costs the stage before. A round that makes the longest path longer is undone, and the next is
more careful; once it cannot be, the gates that such a round had chosen are left alone.

So one path on which nothing can be gained keeps all that are as long from becoming shorter. Where the longest is still
beyond a bound, paths beyond it get stronger gates for as long as the squares of what their ends are late fall in sum.
"""

import math
from itertools import pairwise
from typing import Any

from .liberty import Cell, Library
from .sizing import Sizer, worst_delay
from .timing import Analysis, Net, Timing

ROUNDS = 120
CARE = ((0.95, 0.5), (0.97, 0.5), (0.97, 1.0), (0.985, 0.7), (0.99, 1.0), (0.995, 1.0), (0.998, 1.0), (0.9995, 1.0))
"""How careful a round is: length over that of the longest path, from which on a path is looked at; gain over that of
the best gate of the path, from which on a gate is replaced."""
LEAST_WINDOW = 1e-3
"""A round that gains nothing is followed by one that looks at less of what is beyond the bound, down to this part."""


def upsize(module: dict[str, Any], library: Library, sizer: Sizer, bound: float = math.inf) -> tuple[Analysis, Timing]:
    """Change the kinds of cells of `module` (yosys's JSON) in place, as far as `bound` FO4 if they can come there;
    returns its analysis afterwards."""
    analysis = Analysis(module, library)
    analysis.run()
    drivers = {net: name for name, cell, nets in analysis.cells for output in cell.arcs for net in nets.get(output, ())}
    _shorten_the_longest(analysis, library, sizer, drivers)
    _shorten_all_beyond(bound, analysis, library, sizer, drivers)
    return analysis, analysis.timing()


def _shorten_the_longest(analysis: Analysis, library: Library, sizer: Sizer, drivers: dict[Net, str]) -> None:
    critical = analysis.critical
    care = 0
    left_alone: set[str] = set()
    for _ in range(ROUNDS):
        stronger = _stronger_gates(analysis, library, sizer, drivers, left_alone, *CARE[care])
        if not stronger:
            break
        before = {name: analysis.cell(name)[0] for name in stronger}
        analysis.retype(stronger)
        reached = analysis.critical
        if reached < critical:
            critical = reached
            continue
        analysis.retype(before)
        if care < len(CARE) - 1:
            care += 1
        else:
            left_alone |= set(stronger)


def _shorten_all_beyond(
    bound: float, analysis: Analysis, library: Library, sizer: Sizer, drivers: dict[Net, str]
) -> None:
    excess = analysis.excess(bound)
    window = 1.0  # which part of what is beyond the bound, from the longest path down, is looked at
    gained = False
    left_alone: set[str] = set()
    for _ in range(ROUNDS):
        critical = analysis.critical
        if critical <= bound:
            break
        near = 1 - window * (1 - bound / critical)
        stronger = _stronger_gates(analysis, library, sizer, drivers, left_alone, near, 1.0)
        if not stronger:
            if window == 1.0 and not gained:
                break
            if window == 1.0:
                left_alone.clear()
                gained = False
            window = 1.0
            continue
        before = {name: analysis.cell(name)[0] for name in stronger}
        analysis.retype(stronger)
        reached = analysis.excess(bound)
        if reached < excess:
            excess = reached
            gained = True
            window = min(1.0, 2 * window)
            continue
        analysis.retype(before)
        if len(stronger) > 1 and window > LEAST_WINDOW:
            window /= 4
        else:
            left_alone |= set(stronger)


def _stronger_gates(
    analysis: Analysis,
    library: Library,
    sizer: Sizer,
    drivers: dict[Net, str],
    left_alone: set[str],
    near: float,
    share: float,
) -> dict[str, Cell]:
    """Cells to take instead, by name of the cell, none of those `left_alone`; `drivers`: the cell that drives a net."""
    flip_flop = library.flip_flop
    assert flip_flop is not None
    gains: dict[Net, float] = {}

    def gain(source: Net, target: Net) -> float:
        """What a stronger driver of `target` would save on the path from `source`."""
        cell, pins = analysis.cell(drivers[target])
        stronger = sizer.stronger(cell)
        pin = next((pin for pin in cell.capacitance if pins[pin][0] == source), None)
        if stronger is None or pin is None or cell.clock:
            return 0.0
        load, slew = analysis.load(target), sizer.slew
        saved = worst_delay(cell, pin, load, slew) - worst_delay(stronger, pin, load, slew)
        driver = analysis.cell(drivers[source])[0] if source in drivers else flip_flop
        through = next(arc.related for arcs in driver.arcs.values() for arc in arcs)
        before = analysis.load(source)
        after = before + stronger.capacitance[pin] - cell.capacitance[pin]
        return saved - (worst_delay(driver, through, after, slew) - worst_delay(driver, through, before, slew))

    chosen: dict[str, Cell] = {}
    for path in analysis.long_paths(near):
        driven = [
            (source, target)
            for source, target in pairwise(path)
            if target in drivers and drivers[target] not in left_alone
        ]
        for source, target in driven:
            if target not in gains:
                gains[target] = gain(source, target)
        best = max((gains[target] for _, target in driven), default=0.0)
        for _, target in driven:
            if gains[target] <= 0 or gains[target] < share * best:
                continue
            stronger = sizer.stronger(analysis.cell(drivers[target])[0])
            assert stronger is not None
            chosen[drivers[target]] = stronger
    return chosen
