"""The saved view of waves: lies beside them, names each GPU's signals along the path of a sector."""

from hw.config import PRESETS
from sim.simulator.wave_view import write_view


def test_view(tmp_path):
    view = write_view(tmp_path / "ring.fst", PRESETS["tiny"], gpus=2)
    assert view == tmp_path / "ring.gtkw"
    lines = view.read_text().splitlines()
    assert lines[0] == f'[dumpfile] "{tmp_path / "ring.fst"}"'
    signals = [line for line in lines if line.startswith("ring_top.")]
    assert len(set(signals)) == len(signals)
    titles = [line.removeprefix("-GPU 1: ") for line in lines if line.startswith("-GPU 1: ")]
    path = ["compute", "arbiter", "DRAM", "commits", "Tracker", "ready", "packets", "link"]
    assert [title.split()[0].rstrip(",") for title in titles if title != "link 1"] == path
