"""The commands that documents show: which `.ci/run` runs, and whether those that are only named are such as their
programs accept.

A block with "sh ci" behind its backquotes is run as it stands; one with only "sh" needs what not everybody has, and
holds programs of others, which tests run (:data:`RUN_BY_TESTS`). What a sentence names is read by the option parser of
its program (:func:`error_of`).
`python -m tb.site.commands readme` prints what is to be run of README.md as one script, `pages` that of the others.
"""

import importlib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sim.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "tb" / "site" / "pages"
README = "README.md"
ELSEWHERE = ("examples/README.md", ".github/CONTRIBUTING.md")
RUN_BY_TESTS = {
    "fusesoc": "tb/integration/test_systemverilog_example.py::test_fusesoc_runs_the_simulation_target",
    "iverilog": "tb/integration/test_systemverilog_example.py::test_every_tile_raises_one_event_in_icarus",
    "vvp": "tb/integration/test_systemverilog_example.py::test_every_tile_raises_one_event_in_icarus",
}
"""Programs of others, and the test that runs them as the documents do."""
_BLOCK = re.compile(r"^```sh( ci)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:t3rtl|make|python -m)\s[^`]+)`")
_PLACEHOLDER = re.compile(r"\b(USE|NAME|BLOCK|PATTERN)\b")


@dataclass(frozen=True)
class Block:
    """The commands of one block of document `file`; `run`: by `.ci/run`."""

    file: str
    text: str
    run: bool

    def commands(self) -> Iterator[list[str]]:
        """Each line as words, without comments; lines that end in a backslash are one."""
        for line in self.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def documents() -> list[str]:
    """Files with commands: the tutorial in its order, the other pages, README last, which ends with all the tests."""
    order = re.findall(r"^\w+$", (PAGES / "tutorial" / "index.md").read_text(), re.MULTILINE)
    tutorial = [PAGES / "tutorial" / f"{name}.md" for name in order]
    others = [path for path in sorted(PAGES.rglob("*.md")) if path not in tutorial]
    return [*(str(path.relative_to(ROOT)) for path in (*tutorial, *others)), *ELSEWHERE, README]


def blocks(file: str, root: Path = ROOT) -> list[Block]:
    """The blocks of commands of `file`."""
    return [Block(file, text, bool(run)) for run, text in _BLOCK.findall((root / file).read_text())]


def inline(file: str, root: Path = ROOT) -> list[list[str]]:
    """The words of each command of the project in a sentence of `file`, unless it holds a placeholder."""
    text = re.sub(r"^```.*?^```$", "", (root / file).read_text(), flags=re.MULTILINE | re.DOTALL)
    found = (" ".join(command.split()) for command in _INLINE.findall(text))
    return [shlex.split(command) for command in found if not _PLACEHOLDER.search(command)]


def error_of(words: Sequence[str]) -> str:
    """Why the command could not be run as it is written; "" when it could be."""
    program, arguments = words[0].removeprefix(".venv/bin/"), list(words[1:])
    if program == "t3rtl":
        return _parsed(typer.main.get_command(app), arguments)
    if program == "make":
        return _made(arguments)
    if program == "python":
        return _python(arguments)
    if program == "cd" or program in RUN_BY_TESTS:
        return ""
    return f"{program} is no program that the project knows"


def _parsed(command: Any, arguments: list[str]) -> str:
    """What the option parser of `command`, or of a command in the group that it is, has against `arguments`."""
    context = None
    try:
        while True:
            # Help ends a command while it is parsed.
            context = command.make_context(
                command.name, [word for word in arguments if word != "--help"], parent=context
            )
            if not hasattr(command, "resolve_command"):
                return ""
            rest = [*context._protected_args, *context.args]
            if not rest:
                return "" if "--help" in arguments else f"{command.name} does nothing by itself"
            _, command, arguments = command.resolve_command(context, rest)
    except typer.Exit:
        return ""
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return str(error.format_message())


def _made(arguments: list[str]) -> str:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]
    for word in arguments:
        variable, set_to, _ = word.partition("=")
        if set_to and f"$({variable})" not in makefile and f"$(if $({variable})" not in makefile:
            return f"the Makefile has no variable {variable}"
        if not set_to and word not in targets:
            return f"the Makefile has no target {word}"
    return ""


def _python(arguments: list[str]) -> str:
    if arguments[0] != "-m":
        return "" if (ROOT / arguments[0]).is_file() else f"there is no file {arguments[0]}"
    module, rest = arguments[1], arguments[2:]
    if module == "pytest":
        files = [word.partition("::")[0] for word in rest if "/" in word]
        return next((f"there is no file {file}" for file in files if not (ROOT / file).exists()), "")
    try:
        package = getattr(importlib.import_module(module), "__path__", None)
        main = importlib.import_module(f"{module}.__main__" if package else module).main
    except ImportError as error:
        return str(error)
    program = typer.Typer()
    program.command()(main)
    return _parsed(typer.main.get_command(program), rest)


def scripts() -> dict[str, str]:
    """All blocks that are to be run, in the order of :func:`documents`: those of README.md as one script, those of the
    other documents as another, so that both can run at a time. A line of `t3rtl` that several documents show is run
    where it stands first: what it does is the same everywhere."""
    ran: set[str] = set()

    def is_new(line: str) -> bool:
        command = line.partition(" #")[0].rstrip()
        again = command in ran
        if command.startswith("t3rtl ") and not command.endswith(("\\", "&")):
            ran.add(command)
        return not again

    texts: dict[str, list[str]] = {"pages": [], "readme": []}
    for file in documents():
        for block in blocks(file):
            if block.run:
                text = "".join(filter(is_new, block.text.splitlines(keepends=True)))
                texts["readme" if file == README else "pages"].append(f"# {file}\n{text}")
    return {part: "\n".join(found) for part, found in texts.items()}


if __name__ == "__main__":
    print(scripts()[sys.argv[1]])
