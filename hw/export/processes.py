"""Combinational processes that change what they drive once, written over those that assign a default first.

yosys writes an Amaranth `If` as a default and assignments that replace it, one after the other, of the same variable. A
simulator that handles events one at a time shows every step to the processes that wait for the variable. Icarus Verilog
waits for all bits of a variable where bits are read, so that two processes that each read other bits of what the other
drives wake each other with their defaults for ever, at time zero. Here such a process works on variables of its own and
assigns the results at its end: what wakes nobody when nothing has changed. A process that only computes what registers
take at the next edge of the clock wakes no other, and stays as it is.
"""

import re
from dataclasses import dataclass, field

_PROCESS = re.compile(r"^  always_comb begin\n(.*?)^  end\n", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"(\\\S+ |[A-Za-z_][\w$]*)( ?\[(\d+)(?::(\d+))?\])?")
"""A variable, or some of its bits."""
_ASSIGNMENT = re.compile(rf"^( +)({_PLACE.pattern}|\{{ [^{{}}]* \}})( = )", re.MULTILINE)
_CONDITION = re.compile(r"^ +(?:if|casez?) \(", re.MULTILINE)
_NAME = re.compile(r"\\\S+ |[A-Za-z_][\w$]*")
_REGISTER = re.compile(r"^ +(?:\\\S+ |[A-Za-z_][\w$]*) <= (?:\\\S+ |[A-Za-z_][\w$]*);\n", re.MULTILINE)
_DECLARATION = re.compile(
    r"^  (?:output )?reg (?:signed )?(?:\[(\d+):0\] )?(\\\S+ |[A-Za-z_][\w$]*)(?: =|;)", re.MULTILINE
)


@dataclass
class _Target:
    """A variable that a process drives: which bits, as (low, high)."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    whole: bool = False

    def pieces(self) -> list[tuple[int, int]]:
        """`ranges` without overlaps."""
        answer: list[tuple[int, int]] = []
        for low, high in sorted(self.ranges):
            if answer and low <= answer[-1][1] + 1:
                answer[-1] = (answer[-1][0], max(high, answer[-1][1]))
            else:
                answer.append((low, high))
        return answer


def _own(name: str) -> str:
    """The process's own variable for `name`: no signal is called so, since only numbers follow a `$` in their names."""
    if name.startswith("\\"):
        return f"\\_{name[1:].rstrip()}$new "
    return f"_{name}$new"


def _range(low: int, high: int) -> str:
    return f"[{high}:{low}]" if high > low else f"[{low}]"


def _rewritten(process: re.Match[str], widths: dict[str, int], watched: set[str]) -> str:
    body = process[1]
    first = _ASSIGNMENT.search(body)
    if first is None or not _CONDITION.search(body, first.end()):
        return process[0]
    places = [place for assignment in _ASSIGNMENT.finditer(body) for place in _PLACE.findall(assignment[2])]
    if watched.isdisjoint(name for name, *_ in places):
        return process[0]
    targets: dict[str, _Target] = {}
    for name, select, high, low in places:
        target = targets.setdefault(name, _Target())
        if select:
            target.ranges.append((int(low or high), int(high)))
        else:
            target.whole = True
            target.ranges.append((0, widths[name] - 1))
    lines = []
    for name, target in targets.items():
        pieces = target.pieces()
        bounds = "" if widths[name] == 1 else f"[{pieces[-1][1]}:{pieces[0][0]}] "
        lines.append(f"    reg {bounds}{_own(name).rstrip() if not name.startswith(chr(92)) else _own(name)};\n")
    lines.append(_ASSIGNMENT.sub(lambda m: m[1] + _PLACE.sub(lambda p: _own(p[1]) + (p[2] or ""), m[2]) + m[7], body))
    for name, target in targets.items():
        for low, high in target.pieces():
            part = "" if high - low + 1 == widths[name] else f"{'' if name.endswith(' ') else ' '}{_range(low, high)}"
            lines.append(f"    {name}{part} = {_own(name)}{part};\n")
    return "".join(lines)


def change_once(module: str) -> str:
    """SystemVerilog text of a module as yosys writes it, its processes rewritten as the module docstring says."""
    widths = {name: int(high or 0) + 1 for high, name in _DECLARATION.findall(module)}
    # Names that anything but a register reads.
    watched = set(_NAME.findall(_ASSIGNMENT.sub(r"\1", _REGISTER.sub("", _DECLARATION.sub("", module)))))
    number = 0

    def rewrite(process: re.Match[str]) -> str:
        nonlocal number
        text = _rewritten(process, widths, watched)
        if text == process[0]:
            return text
        number += 1
        return f"  always_comb begin : process_{number}\n{text}  end\n"

    return _PROCESS.sub(rewrite, module)
