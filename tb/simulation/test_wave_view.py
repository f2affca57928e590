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
    named = {"row.command": "0 ACT\n1 PRE\n2 REF\n", "flit.kind": "0 DATA\n1 HEADER\n2 OPEN\n"}
    for signal, names in named.items():
        shown = next(
            number for number, line in enumerate(lines) if signal in line and line.startswith("gpu0.gpu_shell")
        )
        assert lines[shown - 2] == "@2022"
        assert Path(lines[shown - 1].removeprefix("^1 ")).read_text() == names
        assert lines[shown + 1] == "@22"
