"""Every command that README, tutorial and site show is run by `.ci/run`; what a sentence names is read by the option
parser of its program."""

import re
import subprocess
from pathlib import Path

import pytest

from tb.site import commands
from tb.site.commands import ROOT, RUN_BY_TESTS, Block, blocks, documents, error_of, inline
from tb.site.reference import commands_page
from tb.verification.test_testplan import named_tests

UNSAID = ("Missing ", "requires an argument")
"""What a command that the text only names may lack."""


@pytest.mark.parametrize("file", documents())
def test_what_a_sentence_names_is_a_command(file: str) -> None:
    named = {" ".join(words): error_of(words) for words in inline(file)}
    assert {text: error for text, error in named.items() if error and not any(map(error.__contains__, UNSAID))} == {}


def test_every_example_of_the_help_texts_is_accepted() -> None:
    examples = re.findall(r"^Examples?: `(.*)`$", commands_page(), re.MULTILINE)
    assert len(examples) > 8
    lines = [line for text in examples for line in re.split(r"; |, (?=t3rtl)", text)]
    for block in (Block("", line, False) for line in lines if line.startswith("t3rtl")):
        for words in block.commands():
            assert error_of(words) == "", words


@pytest.mark.parametrize("file", documents())
def test_every_block_is_run(file: str) -> None:
    """By `.ci/run`, or for programs of others by a test."""
    not_run = [words for block in blocks(file) for words in block.commands() if not block.run]
    assert [words for words in not_run if words[0] not in {"cd", *RUN_BY_TESTS}] == []


@pytest.mark.parametrize("file", documents())
def test_what_is_run_can_be_run(file: str) -> None:
    """bash understands each block, and every `t3rtl` in it is one that `t3rtl` accepts."""
    for block in blocks(file):
        done = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for line in block.text.replace("\\\n", " ").splitlines():
            command = re.match(r"(t3rtl .*?)(?: (?:&&|\|\|) .*)?$", line)
            if block.run and command:
                assert error_of(next(Block("", command[1], True).commands())) == "", line


def test_ci_runs_the_tutorial_and_readme() -> None:
    run = (ROOT / ".ci" / "run").read_text()
    scripts = commands.scripts()
    for part in scripts:
        assert f"{part}=$(.venv/bin/python -m tb.site.commands {part})" in run
    assert scripts["readme"].rstrip().endswith("make test")
    assert scripts["pages"].index("tutorial/first_run.md") < scripts["pages"].index("tutorial/own_soc.md")
    assert scripts["pages"].count("# tb/site/pages/tutorial/") >= 7


def test_documents_write_no_file_of_the_readme() -> None:
    """README's commands run beside those of the other documents."""
    files = re.compile(r"""(?:--(?:out|html|timeline) |> |savez\(['"])(build/[\w./-]+)""")
    pages, readme = (set(files.findall(text)) for text in commands.scripts().values())
    assert {"build/mine.npz", "build/y.npz"} <= pages
    assert "build/f16_add.txt" in readme
    assert not pages & readme


def test_what_several_documents_show_is_run_once() -> None:
    def of_t3rtl(text: str) -> list[str]:
        return [line.partition(" #")[0].rstrip() for line in text.splitlines() if line.startswith("t3rtl ")]

    shown = [command for file in documents() for block in blocks(file) if block.run for command in of_t3rtl(block.text)]
    run = of_t3rtl("".join(commands.scripts().values()))
    assert sorted(set(shown)) == sorted(run)
    assert len(run) < len(shown)


def test_the_programs_of_others_are_run_by_tests() -> None:
    for test in RUN_BY_TESTS.values():
        file, _, function = test.partition("::")
        assert function in named_tests(file)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("t3rtl run shape --gpu 4", "No such option"),
        ("t3rtl run shape --gpus four", "valid integer"),
        ("t3rtl run", "does nothing by itself"),
        ("t3rtl walk", "No such command"),
        ("t3rtl run gemm --tp 8", "Missing option"),
        ("make coffee", "no target coffee"),
        ("make synth LIBRARY=a.lib", "no variable LIBRARY"),
        ("python examples/no_such.py", "no file"),
        ("python -m tb.formal --onyl NAME", "No such option"),
        ("python -m pytest -q tb/no_such.py", "no file"),
        ("t4rtl list", "no program"),
    ],
)
def test_a_wrong_command_is_found(command: str, error: str) -> None:
    found = error_of(command.split())
    assert error.lower() in found.lower(), found


def test_a_command_in_the_text_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "Say `t3rtl walk\n--far`, `t3rtl run USE`, `make tea`, or\n```sh\nt3rtl list\n```\n"
    )
    assert inline("page.md", tmp_path) == [["t3rtl", "walk", "--far"], ["make", "tea"]]
    assert [list(block.commands()) for block in blocks("page.md", tmp_path)] == [[["t3rtl", "list"]]]
