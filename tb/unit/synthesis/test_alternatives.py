"""Other Trackers: what is refused, what they store, which counters hold a tile, and the tables that compare them."""

import json
from dataclasses import replace

import pytest

from hw.config import PRESETS, ConfigurationError, preset
from hw.registers.map import register_map
from hw.synthesis.alternatives import PAPER, VARIANTS, configurations
from hw.tracker.storage import entry_layout
from sim.cli import alternatives
from sim.cli import main as cli
from sim.cli.alternatives import BEGIN, COMMITTED, END, Measured, area_table, fit_table, loss_table, record_tables
from sim.collectives.compiler import Placement, compile_program
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.host.limits import DriverError
from sim.host.tiling import Tiling
from sim.topologies.ring import ring


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tracker_tags": 0}, "tracker_tags must be true or false, got 0"),
        ({"tracker_tags": False, "tracker_ways": 4}, "tracker_ways must be 8 without tracker_tags"),
        ({"tracker_sets": 2048}, "tracker_sets must be at most 1024 with tracker_tags; got 2048"),
        ({"tracker_tags": False, "tracker_sets": 8192}, "tracker_sets must be one of"),
    ],
)
def test_a_tracker_that_cannot_be_built_is_refused(changes, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        preset("paper", **changes)


def test_without_tags_a_plan_with_more_workgroups_than_places_is_refused():
    config = preset("paper", tracker_tags=False)
    tiling = Tiling(rows=128, columns=128 * 65, tile_rows=128, tile_columns=128, wfs=8)
    program, placements = ring_reduce_scatter(4), {"output": Placement(0, tiling)}
    with pytest.raises(DriverError, match="tracker_sets must be at least 260 without tracker_tags"):
        compile_program(program, config, ring(4), 0, placements)
    compile_program(program, replace(config, tracker_sets=512), ring(4), 0, placements)


def test_variants_store_what_they_should():
    """The same capacity with 4 and 16 ways: a tag bit less or more. A narrower counter saves its bits in every entry;
    no tags save eleven."""
    storage = {name: config.tracker_bytes for name, config in configurations().items()}
    assert storage[PAPER] == 19456
    assert storage["512 sets, 4 ways"] == 2048 * 75 // 8
    assert storage["128 sets, 16 ways"] == 2048 * 77 // 8
    assert storage["counters of 12 bits"] == 2048 * 71 // 8
    assert storage["no tags, 256 WGs"] == 2048 * 65 // 8
    assert storage["no tags, 4,096 WGs"] == 16 * 2048 * 65 // 8
    for config in configurations().values():
        assert entry_layout(config).size == config.tracker_entry_bits


def test_registers_tell_what_tracker_there_is():
    def sizes(config):
        (register,) = (item for item in register_map(config) if item.name == "tracker_parameters")
        return {field.name: field.reset for field in register.fields}

    assert sizes(PRESETS["paper"]) == {"sets": 256, "ways": 8, "banks": 1}
    without = preset("paper", tracker_tags=False, tracker_sets=4096)
    assert sizes(without) == {"sets": 0, "ways": 8, "banks": 1, "wg": 12}


def figures(gates, bits, fo4):
    return {"gate_equivalents": gates, "memory_bits": bits, "fo4": fo4}


def test_area_stands_beside_the_papers():
    rows = area_table({PAPER: figures(10000, 200000, 23.4), "256 sets, 4 ways": figures(9000, 120000, 22)})
    assert rows[2] == f"| {PAPER} | 19,456 | +0.0 % | 200,000 | 10,000 | +0.0 % | 23.4 |"
    assert rows[3] == "| 256 sets, 4 ways | 9,728 | -50.0 % | 120,000 | 9,000 | -10.0 % | 22.0 |"
    assert "| 512 sets, 4 ways | 19,200 | -1.3 % | - | - | - | - |" in rows
    assert len({row.count("|") for row in rows}) == 1


def losses(cycles, evictions):
    counts = {"evictions": evictions, "refetches": 2, "stall_cycles": 3, "peak_occupancy": 2048}
    return {"cycles": cycles, **counts, "errors": []}


def test_losses_stand_beside_the_papers_on_the_same_workload():
    runs = {
        (PAPER, "a"): losses(1000, 4),
        (PAPER, "b"): losses(500, 0),
        ("256 sets, 4 ways", "a"): losses(1010, 4000),
    }
    rows = loss_table(runs)
    assert rows[2:] == [
        f"| a | {PAPER} | 2,048 | 4 | 2 | 3 | 1,000 | +0.00 % |",
        "| a | 256 sets, 4 ways | 2,048 | 4,000 | 2 | 3 | 1,010 | +1.00 % |",
        f"| b | {PAPER} | 2,048 | 0 | 2 | 3 | 500 | +0.00 % |",
    ]
    assert len({row.count("|") for row in rows}) == 1


def test_a_counter_of_nine_bits_holds_a_tile_in_sectors_not_in_bytes():
    """128 x 128 FP16 in 8 WF tiles of 4 KiB, two updates each: 8,192 bytes or 256 sectors."""
    (row,) = fit_table(["t-nlg/fc-2/tp8"])[2:]
    assert row.startswith("| t-nlg/fc-2/tp8 | 2,176 | 4,096 (last column 1,024) | 8,192 | 256 | no, yes |")


def test_what_is_measured_is_kept_until_the_sources_change(tmp_path):
    measured = Measured(tmp_path)
    assert measured.get("run", PAPER, "a/b") is None
    measured.keep({"cycles": 7}, "run", PAPER, "a/b")
    assert Measured(tmp_path).get("run", PAPER, "a/b") == {"cycles": 7}
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sources": "others"}))
    assert measured.get("run", PAPER, "a/b") is None


def test_tables_are_put_between_the_marks_of_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    record_tables(["| a |"], page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\nMeasured at commit ")
    assert text.endswith(f"\n\n| a |\n{END}\nafter\n")
    assert "old" not in text


def test_the_committed_page_tells_of_every_variant_and_workload():
    """In a row, or in the list of what is not measured."""
    text = COMMITTED.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    shown = text.partition(BEGIN)[2].partition(END)[0]
    for name in VARIANTS:
        assert f"| {name} |" in shown
    for workload in alternatives.WORKLOADS:
        for name in alternatives.SIMULATED:
            assert f"| {workload} | {name} |" in shown or f"{name} on {workload}" in shown


@pytest.mark.parametrize(
    ("option", "sentence"), [("--variant", "unknown variant 'none'"), ("--workload", "unknown workload 'none'")]
)
def test_unknown_names_are_refused(option, sentence, capsys):
    assert cli.command_line(["alternatives", option, "none"]) == 2
    assert sentence in capsys.readouterr().err
