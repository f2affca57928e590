"""The saved view of waves: lies beside them, names each GPU's signals along the path of a sector."""

from pathlib import Path

from hw.config import PRESETS
from sim.simulator.wave_view import write_view


def test_view(tmp_path):
    view = write_view(tmp_path / "ring.fst", PRESETS["tiny"], gpus=2)
    assert view == tmp_path / "ring.gtkw"
    lines = view.read_text().splitlines()
    assert lines[0] == f'[dumpfile] "{tmp_path / "ring.fst"}"'
    signals = [line for line in lines if line.startswith(("gpu0.gpu_shell.", "gpu1.gpu_shell."))]
    assert len(set(signals)) == len(signals)
    titles = [line.removeprefix("-GPU 1: ") for line in lines if line.startswith("-GPU 1: ")]
    path = ["compute", "arbiter", "DRAM", "commits", "Tracker", "ready", "packets", "link"]
    assert [title.split()[0].rstrip(",") for title in titles if title != "link 1"] == path


def test_enums_have_names_and_a_marker_stands_where_the_run_begins(tmp_path):
    lines = write_view(tmp_path / "ring.fst", PRESETS["tiny"], gpus=1, begins=123).read_text().splitlines()
    (marker,) = (line for line in lines if line.startswith("*"))
    assert marker.split()[1:3] == ["123500", "123500"]
    assert len(marker.split()) == 1 + 1 + 26
    command = next(
        number for number, line in enumerate(lines) if "row.command" in line and line.startswith("gpu0.gpu_shell")
    )
    assert lines[command - 2] == "@2022"
    names = lines[command - 1].removeprefix("^1 ")
    assert Path(names).read_text() == "0 ACT\n1 PRE\n2 REF\n"
    assert lines[command + 1] == "@22"
