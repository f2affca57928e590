"""What `t3rtl explain` says of a program, and the picture it draws: against lines that were written by hand."""

from pathlib import Path

import numpy as np
import pytest

from sim.cli import main
from sim.collectives.explain import explain
from sim.collectives.known import PROGRAMS, program
from sim.topologies.known import topology

BY_HAND = """\
split-k-reduce-scatter on 3 GPUs, ring: 2 link ports a GPU
  array output: 3 chunks, fp16, add
  takes of a node: 3 ranges, 2 sends, 0 doorbells, 1 peers
  more than two addends meet in a chunk: a rounded sum depends on the order in which they arrive

rank 1
  kernel gemm stores output[0], output[2], output[1], each 2 times
  region     a local store                                 complete after  and then
  output[0]  goes to rank 2 output[0] as update by port 0
  output[1]  updates it                                    3 accesses      done
  output[2]  updates it                                    4 accesses      DMA to rank 2 output[2] as update by port 0
  left with: output[1]
  moved of        reads  local stores  local updates  arriving stores  arriving updates  egress  blocks  triggers
  output, chunks  1      0             4              0                3                 3       1       2
"""
GATED = """\
rank 0
  in memory before: a[0]
  kernel gemm stores output[0] after its tile row of a[0], output[1] after its tile row of a[1]
  region     a local store  complete after  and then
  a[0]                      its doorbell    a launch event, DMA to rank 1 a[0] as store by port 0
  a[1]                      1 access        a launch event
  output[0]  replaces it    not tracked
  output[1]  replaces it    not tracked
  left with: a[0], a[1]
  moved of        reads  local stores  local updates  arriving stores  arriving updates  egress  blocks  triggers
  a, chunks       1      0             0              1                0                 1       1       2
  output, chunks  0      2             0              0                0                 0       0       0
"""


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints."""
    assert main.command_line(["explain", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_a_program_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "split-k-reduce-scatter", "--gpus", "3", "--splits", "2", "--rank", "1") == BY_HAND
    sliced = shown(capsys, "direct-all-gather-gemm", "--gpus", "2", "--gates", "fine", "--slices", "4", "--rank", "0")
    assert "output[0] after each of 4 slices of its tile row of a[0], output[1] after each of 4 slices" in sliced
    text = shown(capsys, "direct-all-gather-gemm", "--gpus", "2", "--gates", "fine", "--rank", "0")
    assert text.endswith("\n" + GATED)


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_programs_and_their_ranks_are_explained(capsys: pytest.CaptureFixture[str], name: str) -> None:
    lines = shown(capsys, name, "--gpus", "5").splitlines()
    assert [line for line in lines if line.startswith("rank")] == [f"rank {rank}" for rank in range(5)]
    assert lines[0].startswith(f"{name} on 5 GPUs, {next(PROGRAMS[name].topologies)}:")
    # The command only prints these lines.
    assert lines == list(explain(program(name, 5), topology(next(PROGRAMS[name].topologies), 5), range(5)))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ring-all-scatter"], "collective must be one of ring-reduce-scatter, ring-reduce-scatter-both"),
        (
            ["all-to-all", "--topology", "ring"],
            "all-to-all sends from rank 0 to rank 2, but the ring has no link there",
        ),
        (["all-to-all", "--topology", "star"], "topology must be one of ring, ring-one-way, mesh"),
        (["all-to-all", "--gpus", "17"], "the mesh joins 2 to 16 GPUs"),
        (["all-to-all", "--gpus", "1"], "all-to-all needs at least 2 GPUs, and at most 64, got 1"),
        (["all-to-all", "--rank", "4"], "rank must be from 0 to 3, got 4"),
        (["all-to-all", "--pieces", "2"], "--pieces has no effect here: all-to-all has no such choice"),
        (["ring-all-reduce", "--pieces", "0"], "pieces must be at least 1, got 0"),
        (["ring-reduce-scatter", "--direction", "up"], "direction must be one of cw, ccw; got 'up'"),
        (["ring-all-gather-gemm", "--gates", "wide"], "gates must be one of coarse, fine; got 'wide'"),
        (["all-to-all", "--picture", "x.pdf"], "a picture is a file that ends in .svg or .png, not x.pdf"),
        (["broadcast-tree", "--root", "4"], "root must be a rank from 0 to 3, got 4"),
    ],
)
def test_what_cannot_be_explained_is_refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.command_line(["explain", *arguments]) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert not list(tmp_path.iterdir())


def test_a_picture_is_the_same_file_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="needs the packages of the extra [report]")
    for suffix, begin in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
        one, two = (tmp_path / f"{name}{suffix}" for name in ("one", "two"))
        for path in (one, two):
            assert shown(capsys, "ring-all-reduce", "--gpus", "3", "--picture", str(path)).endswith(f"{path}\n")
        assert one.read_bytes().startswith(begin)
        assert one.read_bytes() == two.read_bytes()


def test_a_picture_shows_every_write_once() -> None:
    """Marks of an all-gather of 4: 4 stores, 12 arrivals, each with a line from where it was sent."""
    pytest.importorskip("matplotlib", reason="needs the packages of the extra [report]")
    from sim.report.space_time import space_time

    axis = space_time(program("ring-all-gather", 4), "ring").axes[0]
    marks = [line.get_marker() for line in axis.lines]
    assert (marks.count("s"), marks.count("o"), marks.count("D")) == (4, 12, 0)
    chunks = sorted(text.get_text() for text in axis.texts)
    assert chunks == sorted("0123" * 4)
    lines = [
        np.asarray(line.get_xydata()).tolist()
        for line in axis.lines
        if line.get_marker() == "None" and line.get_zorder() == 1
    ]
    assert len(lines) == 12
    assert {(round(begin[1]) + 1) % 4 == round(end[1]) for begin, end in lines} == {True}
    rung = space_time(program("all-to-all-dma", 3), "mesh").axes[0]
    assert [line.get_marker() for line in rung.lines].count("D") == 6
