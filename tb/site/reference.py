"""Reference pages that are tables of what is in the sources: commands, schema of results, registers, testplan."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import typer

from hw.config import PRESETS
from hw.registers.documents import markdown
from hw.registers.systemrdl import systemrdl
from sim.cli.main import app
from sim.experiments import results
from tb.coverage_page.inputs import Proof, Test, read_proofs, read_testplan, read_tests
from tb.functional_coverage.group import Group
from tb.functional_coverage.plan import GROUPS


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [
        "",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *(f"| {' | '.join(row)} |" for row in cells),
        "",
    ]


def results_page() -> str:
    """The schema of results (:mod:`sim.experiments.results`)."""
    rows = [(f"`{name}`", figure.unit, figure.text) for name, figure in results.FIGURES.items()]
    lines = [
        "# Results: the JSON schema",
        "",
        *_paragraphs(results.__doc__ or ""),
        *table(("figure", "unit", "meaning"), rows),
    ]
    return "\n".join(lines)


def _paragraphs(docstring: str) -> list[str]:
    """A docstring as Markdown."""
    return re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", docstring).strip().splitlines()


def registers_page(preset: str = "paper") -> str:
    """The register map of `preset`, and its SystemRDL."""
    config = PRESETS[preset]
    return "\n".join(
        [
            markdown(config),
            "",
            "## SystemRDL",
            "",
            "`t3rtl verilog` writes it beside the modules, for tools that make IP-XACT, UVM models or drivers of it.",
            "",
            "```text",
            systemrdl(config),
            "```",
            "",
        ]
    )


def commands_page() -> str:
    """Every command with its arguments and options, as `--help` has them."""
    lines = ["# Commands", "", "Each explains itself with `--help`; this page is made from the same texts.", ""]
    for name, command in commands(typer.main.get_command(app), "t3rtl"):
        lines += [f"## {name}", "", *_help(command), *_options(command)]
    return "\n".join(lines)


def commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """All commands of `group` and of the groups in it, by their words."""
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _help(command: Any) -> list[str]:
    text = re.sub(r"\[/?bold\]", "`", command.help or "").replace("<", "&lt;")
    return [*(re.sub(r"^(Examples?): (.*)$", r"\1: `\2`", line.strip()) for line in text.splitlines()), ""]


def _options(command: Any) -> list[str]:
    rows = []
    for item in command.params:
        words = (*item.opts, *item.secondary_opts) if item.param_type_name == "option" else (item.metavar or item.name,)
        default = "" if item.default is None or callable(item.default) else str(item.default)
        text = (item.help or "").replace("<", "&lt;")
        rows.append((f"`{', '.join(words)}`", text, f"`{default}`" if default else ""))
    return table(("argument or option", "meaning", "default"), rows) if rows else []


def testplan_page(root: Path) -> str:
    """The testplan, each requirement beside its tests, with the outcomes that `build/` holds."""
    tests = read_tests(root / "build" / "coverage" / "junit.xml")
    proofs = read_proofs(root / "build" / "formal" / "summary.json")
    groups = {group.name: group for group in GROUPS}
    lines = [
        "# Testplan",
        "",
        "What the hardware must do (`tb/testplan.toml`), and what shows that it does.",
        _found("tests", tests, "make coverage"),
        _found("proofs", proofs, "make formal"),
        "",
    ]
    for entry in read_testplan(root / "tb" / "testplan.toml") or []:
        lines += [f"## {entry['id']}", "", _plain(entry["requirement"]), ""]
        lines += [f"- test `{name}`{_test_outcome(name, tests)}" for name in entry["tests"]]
        lines += [f"- cover group `{name}`: {_combinations(groups[name])}" for name in entry["cover"]]
        lines += [f"- proof `{name}`{_proof_outcome(name, proofs)}" for name in entry["properties"]]
        lines.append("")
    return "\n".join(lines)


def _combinations(group: Group) -> str:
    count = prod(map(len, group.axes.values())) - len(group.unreachable)
    return f"{count:,} combinations of {', '.join(group.axes)}"


def _plain(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("{", "\\{")


def _found(what: str, found: Sequence[Any] | None, command: str) -> str:
    if found is None:
        return f"`{command}` has not been run in this checkout: no outcomes of the {what} are shown."
    return f"The outcomes of the {what} are those of the last `{command}` in this checkout ({len(found)} of them)."


def _test_outcome(name: str, tests: Sequence[Test] | None) -> str:
    """What the JUnit file says of `file::function`; cocotb tests have no entry of their own."""
    if tests is None:
        return ""
    file, _, function = name.partition("::")
    in_file = [test for test in tests if test.file == file]
    own = function.startswith("test_")
    cases = [test for test in in_file if test.name.partition("[")[0] == function] if own else in_file
    if not cases:
        return ": **not run**"
    note = "" if own else "all of its file, "
    counts: Mapping[str, int] = {
        kind: sum(case.outcome == kind for case in cases) for kind in ("failed", "skipped", "passed")
    }
    return f": {note}" + ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def _proof_outcome(name: str, proofs: Sequence[Proof] | None) -> str:
    if proofs is None:
        return ""
    found = next((proof for proof in proofs if proof.name == name), None)
    return f": {found.status}, {found.scope}" if found else ": **not run**"
