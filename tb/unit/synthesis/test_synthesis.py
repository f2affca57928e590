"""The synthesis flow: its library, its timing pass on examples computed by hand, its reports and its refusals."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hw.config import PRESETS
from hw.protection import ALL, LEVELS
from hw.synthesis import protection, report
from hw.synthesis.blocks import BLOCKS
from hw.synthesis.liberty import LibertyError, Library
from hw.synthesis.logical_effort import FLIP_FLOP_DELAY, FLIP_FLOP_SETUP, FO4, TAU_PS, liberty_text
from hw.synthesis.measure import BOUND, measure, preference
from hw.synthesis.memory_macros import access_time
from hw.synthesis.sizing import Sizer
from hw.synthesis.timing import Analysis, fo4_delay
from hw.synthesis.upsizing import upsize
from sim.cli import main as cli


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    path = tmp_path_factory.mktemp("library") / "effort.lib"
    path.write_text(liberty_text())
    return Library([path])


def netlist(cells: dict, ports: dict, names: dict | None = None) -> dict:
    """A module of yosys's JSON: `cells` name -> (type, pins), `ports` name -> (direction, nets)."""
    nets = names or {}
    return {
        "cells": {
            name: {"type": kind, "connections": pins, "port_directions": {}} for name, (kind, pins) in cells.items()
        },
        "ports": {name: {"direction": direction, "bits": bits} for name, (direction, bits) in ports.items()},
        "netnames": {name: {"hide_name": 0, "bits": [net]} for name, net in nets.items()},
    }


def two_flip_flops(inverters: int) -> dict:
    """A flip-flop that drives `inverters` inverters, one of which leads to a second flip-flop."""
    cells = {"first": ("DFF_X2", {"CLK": [1], "D": ["0"], "Q": [2]})}
    for number in range(inverters):
        cells[f"inverter_{number}"] = ("INV_X1", {"A": [2], "Y": [3 + number]})
    cells["second"] = ("DFF_X2", {"CLK": [1], "D": [3], "Q": [90]})
    return netlist(cells, {"clk": ("input", [1])}, {"first": 2, "second": 90})


def test_fo4_is_five_tau(library):
    assert fo4_delay(library) == pytest.approx(FO4 * TAU_PS)
    assert library.inverter.name == "INV_X1"
    assert library.nand.name == "NAND2_X1"
    assert library.nand.area == 1


@pytest.mark.parametrize("inverters", [1, 4])
def test_a_path_of_one_inverter(library, inverters):
    """Flip-flop of strength 2: 6 + n / 2 tau with n inverters to drive; inverter 1 + 1 (a flip-flop's D); set-up 4."""
    timing = Analysis(two_flip_flops(inverters), library).run()
    path = next(item for item in timing.paths if item.end == "second")
    assert path.start == "first"
    assert path.length == pytest.approx(TAU_PS * (FLIP_FLOP_DELAY + inverters / 2 + 1 + 1 + FLIP_FLOP_SETUP))


def test_the_longer_of_two_paths_counts(library):
    """NAND2 with one input behind an inverter: 6 + (1 + 4/3) / 2, inverter 1 + 4/3, NAND 2 + 1, set-up 4."""
    cells = {
        "first": ("DFF_X2", {"CLK": [1], "D": ["0"], "Q": [2]}),
        "inverter": ("INV_X1", {"A": [2], "Y": [3]}),
        "nand": ("NAND2_X1", {"A": [2], "B": [3], "Y": [4]}),
        "second": ("DFF_X2", {"CLK": [1], "D": [4], "Q": [5]}),
    }
    timing = Analysis(netlist(cells, {"clk": ("input", [1])}, {"second": 5}), library).run()
    length = 6 + (1 + 4 / 3) / 2 + (1 + 4 / 3) + (2 + 1) + 4
    assert timing.critical == pytest.approx(length / FO4, rel=1e-4)
    assert [point.through for point in timing.paths[0].points] == ["DFF_X2", "INV_X1", "NAND2_X1"]


def test_a_memory_takes_its_access_time(library):
    """A synchronous read of 16 Kbit, then a set-up: 6 + 1.2 log2(16) FO4, half a tau for the load, 4 tau."""
    module = netlist({"second": ("DFF_X2", {"CLK": [1], "D": [5], "Q": [6]})}, {"clk": ("input", [1])}, {"second": 6})
    parameters = {"WIDTH": 1, "ABITS": 1, "RD_CLK_ENABLE": 1, "RD_PORTS": 1, "SIZE": 16384}
    pins = {"WR_ADDR": [7], "WR_DATA": [8], "WR_EN": [9], "RD_ADDR": [10], "RD_EN": ["1"], "RD_DATA": [5]}
    module["cells"]["memory"] = {
        "type": "$mem_v2",
        "parameters": parameters,
        "connections": pins,
        "port_directions": {},
    }
    timing = Analysis(module, library).run()
    assert access_time(16384) == pytest.approx(10.8)
    assert timing.critical == pytest.approx(10.8 + (0.5 + FLIP_FLOP_SETUP) / FO4)


def test_a_combinational_loop_is_refused(library):
    cells = {"a": ("INV_X1", {"A": [2], "Y": [3]}), "b": ("INV_X1", {"A": [3], "Y": [2]})}
    with pytest.raises(ValueError, match="combinational loop"):
        Analysis(netlist(cells, {}), library).run()


def test_buffers_make_a_heavy_net_faster(library):
    module = two_flip_flops(64)
    slow = Analysis(module, library).run()
    Sizer(module, library).run()
    fast = Analysis(module, library).run()
    kinds = [cell["type"] for cell in module["cells"].values()]
    assert any(kind.startswith("BUF") for kind in kinds)
    assert kinds.count("INV_X1") == 64
    assert fast.critical < 0.6 * slow.critical


def test_stronger_gates_make_a_long_path_faster(library):
    """An inverter before 24 flip-flops: 6 + 1/2, 1 + 24, 4 tau; one twice as strong: 6 + 2/2, 1 + 12, 4."""
    cells = {"first": ("DFF_X2", {"CLK": [1], "D": ["0"], "Q": [2]}), "inverter": ("INV_X1", {"A": [2], "Y": [3]})}
    cells |= {f"last_{n}": ("DFF_X2", {"CLK": [1], "D": [3], "Q": [10 + n]}) for n in range(24)}
    module = netlist(cells, {"clk": ("input", [1])})
    slow = Analysis(module, library).run()
    _, fast = upsize(module, library, Sizer(module, library))
    assert slow.critical == pytest.approx((6 + 1 / 2 + 1 + 24 + 4) / FO4)
    assert fast.critical < (6 + 2 / 2 + 1 + 12 + 4) / FO4
    assert module["cells"]["inverter"]["type"].startswith("INV_X")
    assert len(module["cells"]) == 26


def test_a_path_that_cannot_be_shortened_does_not_keep_the_others_beyond_the_bound(library):
    """As above, and a flip-flop, which stays as it is, before 52 others: 6 + 52/2, 4 tau."""
    cells = {"first": ("DFF_X2", {"CLK": [1], "D": ["0"], "Q": [2]}), "inverter": ("INV_X1", {"A": [2], "Y": [3]})}
    cells |= {f"last_{n}": ("DFF_X2", {"CLK": [1], "D": [3], "Q": [10 + n]}) for n in range(24)}
    cells |= {"alone": ("DFF_X2", {"CLK": [1], "D": ["0"], "Q": [4]})}
    cells |= {f"stays_{n}": ("DFF_X2", {"CLK": [1], "D": [4], "Q": [100 + n]}) for n in range(52)}

    def upsized(bound: float) -> str:
        module = netlist(cells, {"clk": ("input", [1])})
        _, timing = upsize(module, library, Sizer(module, library), bound)
        assert timing.critical == pytest.approx((6 + 52 / 2 + 4) / FO4)
        return module["cells"]["inverter"]["type"]

    assert upsized(math.inf) == upsized(36 / FO4) == "INV_X1"
    assert upsized(24 / FO4) == "INV_X2"


def test_the_smaller_netlist_is_taken_where_both_are_fast_enough() -> None:
    def first(*netlists: tuple[float, float]) -> tuple[float, float]:
        """(Area, FO4) of the one that is taken."""
        results: list[Any] = [
            SimpleNamespace(area=area, timing=SimpleNamespace(critical=length)) for area, length in netlists
        ]
        best = min(results, key=preference)
        return best.area, best.timing.critical

    assert first((110.0, BOUND - 3), (100.0, BOUND)) == (100.0, BOUND)
    assert first((100.0, BOUND + 0.1), (110.0, BOUND)) == (110.0, BOUND)
    assert first((100.0, BOUND + 2), (110.0, BOUND + 1)) == (110.0, BOUND + 1)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read"),
        (b"hello", "not a Liberty file"),
        (b'library (x) {\n time_unit : "1ps";\n', "braces do not match"),
        (b'library (x) {\n time_unit : "1ps";\n}\n', "no inverter and no two-input NAND and no flip-flop"),
        (gzip.compress(b"x" * 100, mtime=0)[:20], "cannot be read"),
    ],
)
def test_bad_liberty_is_one_sentence_and_exit_code_two(tmp_path, capsys, content, sentence):
    path = tmp_path / "bad.lib"
    if content is not None:
        path.write_bytes(content)
    assert cli.command_line(["synth", "--block", "arbiter", "--liberty", str(path), "--no-fpga"]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "bad.lib" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--block", "trackr"], "unknown block 'trackr'; allowed: address_map; arbiter"),
        (["--preset", "huge"], "unknown preset 'huge'; allowed: paper"),
        (["--processes", "0"], "processes must be from 1 to 64"),
        (["--record", "--preset", "paper"], "--record needs both default presets"),
    ],
)
def test_bad_options(capsys, arguments, sentence):
    assert cli.command_line(["synth", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_the_arbiter_from_rtl_to_summary(tmp_path, library):
    """The whole flow on a small block, with the logical-effort library given as the user's as well."""
    liberty = tmp_path / "mine.lib.gz"
    liberty.write_bytes(gzip.compress(liberty_text().encode()))
    figures = measure("arbiter", PRESETS["tiny"], tmp_path / "out", [liberty])
    assert 5 < figures.fo4 < 30
    assert figures.memory_bits == 0
    assert figures.picoseconds == pytest.approx(figures.fo4 * FO4 * TAU_PS, abs=TAU_PS * FO4 * 0.06)
    assert figures.square_microns == pytest.approx(figures.gate_equivalents, abs=1)
    summary = report.summarize({("tiny", "arbiter"): figures})
    assert json.loads(json.dumps(summary)) == summary
    assert report.changes(summary, summary) == []
    other = report.summarize({("tiny", "arbiter"): replace(figures, fo4=2 * figures.fo4)})
    assert report.changes(other, summary) == [f"tiny arbiter: fo4 {figures.fo4} -> {2 * figures.fo4} (+100.0 %)"]


def test_the_trackers_storage_is_the_papers(tmp_path):
    """19,456 bytes of counters at the paper's size: the one memory of 256 sets x 8 ways x 76 bits."""
    from hw.synthesis.mapping import memory_sizes, write_design

    source = write_design(BLOCKS["tracker"](PRESETS["paper"]), "tracker", tmp_path)
    sizes = memory_sizes(source, "tracker")
    assert sizes["bank_0.storage.sets"] == 19456 * 8


def test_the_table_between_the_markers(tmp_path):
    document = tmp_path / "AREA.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_table(["| a |"], document)
    assert document.read_text() == f"before\n{report.BEGIN}\n| a |\n{report.END}\nafter\n"
    document.write_text("nothing")
    with pytest.raises(ValueError, match="lacks the line"):
        report.write_table([], document)


def test_rows_that_were_not_measured_stay():
    committed = {"paper": {"alu": {"fo4": 1}, "gone": {"fo4": 2}, "node": {"fo4": 3}}, "huge": {"alu": {"fo4": 4}}}
    merged = report.merge({"paper": {"tracker": {"fo4": 5}, "alu": {"fo4": 6}}}, committed, ("alu", "tracker", "node"))
    assert list(merged["paper"].items()) == [("alu", {"fo4": 6}), ("tracker", {"fo4": 5}), ("node", {"fo4": 3})]
    assert list(merged) == ["paper"]


def test_the_page_shows_the_committed_figures():
    page = (Path(__file__).parents[3] / "hw/synthesis/AREA.md").read_text()
    shown = page.partition(report.BEGIN)[2].partition(report.END)[0].strip().splitlines()
    assert shown == report.table(report.read_summary(report.COMMITTED))


def test_a_library_without_cells_named(library):
    with pytest.raises(LibertyError, match="no Liberty file"):
        Library([])


def test_two_corners_of_one_library_are_refused(tmp_path):
    slow, typical = tmp_path / "slow.lib", tmp_path / "typical.lib"
    for path in (slow, typical):
        path.write_text(liberty_text())
    with pytest.raises(LibertyError, match=r"typical.lib: cell \w+ is in .*slow.lib too; give the files of one corner"):
        Library([slow, typical])


def test_what_protection_costs_in_all_is_told_when_all_is_measured() -> None:
    figures = {"gate_equivalents": 1000, "memory_bits": 200, "fo4": 20.0}
    more = {"gate_equivalents": 1100, "memory_bits": 250, "fo4": 21.5}
    names = protection.blocks()
    summary = {protection.name_of(level): dict.fromkeys(names, figures) for level in LEVELS}
    summary[protection.name_of(ALL)] = dict.fromkeys(names, figures) | {"tracker": more}
    told, empty, *rows = protection.table(summary)
    count = len(names)
    assert f"`none` {1000 * count:,} gate equivalents, `links` {1000 * count:,} gate equivalents (+0.0 %)" in told
    assert f"`all` {1000 * count + 100:,} gate equivalents (+{10 / count:.1f} %)" in told
    assert f"{25 / count:+.1f} % bits" in told
    assert "20.0, 20.0, 21.5 FO4" in told
    assert not empty and rows[0].startswith("| mechanism")
    one = {level: {"tracker": found["tracker"]} for level, found in summary.items()}
    assert protection.table(one)[0].startswith("| mechanism") and len(protection.table(one)) == 3
    for level in LEVELS:
        summary[protection.name_of(level)]["node"] = more
    whole = protection.table(summary)
    assert whole[0] == told and whole[4:] == rows
    assert whole[2].startswith("The `node`, all but the near-bank unit, takes with `none` 1,100 gate equivalents,")
