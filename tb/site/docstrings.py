"""Docstrings as Sphinx wants them: a list begins and ends at a blank line; a component shows its own parameters."""

import inspect
import re
from typing import Any

_ITEM = re.compile(r"^(\s*)(?:[-*]|\d+\.) ")


def as_restructured_text(_app: object, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Handler of Sphinx's `autodoc-process-docstring`: puts the blank lines around lists into `lines`."""
    lines[:] = with_blank_lines(lines)


def signature_of(
    _app: object, what: str, _name: str, kind: Any, _options: Any, signature: str | None, _returns: str | None
) -> tuple[str, None] | None:
    """Handler of `autodoc-process-signature`: what Amaranth's metaclass hides, the parameters of a component."""
    if what != "class" or not (signature or "").startswith("(*args, src_loc_at"):
        return None
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    plain = [item.replace(annotation=inspect.Parameter.empty) for item in parameters]
    return str(inspect.Signature([item for item in plain if item.name != "src_loc_at"])), None


def with_blank_lines(lines: list[str]) -> list[str]:
    """`lines` with a blank one before the first and after the last item of each list."""
    answer: list[str] = []
    inside = False
    for line in lines:
        item = _ITEM.match(line)
        if item and not inside and answer and answer[-1].strip():
            answer.append("")
        if inside and line.strip() and not item and not line.startswith(" "):
            if answer[-1].strip():
                answer.append("")
            inside = False
        inside = inside or bool(item)
        answer.append(line)
    return answer
