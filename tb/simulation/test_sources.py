"""What a build or a result is made from, as its imports say: nothing stale is used again, and no more is rebuilt."""

from pathlib import Path

import pytest

from sim.models import FOLDER, included_texts, model_texts
from sim.simulator import fast_model
from sim.simulator.sources import ROOT, digest_of, modules_reached, sources_of

TREE = {
    "sim/a.py": "from sim import b\nimport numpy",
    "sim/b.py": "def f():\n    import hw.c.d",
    "hw/c/__init__.py": "",
    "hw/c/d.py": "from ..e import value",
    "hw/c/unused.py": "",
    "hw/c/array.sv": "module array; endmodule",
    "hw/c/data/table.json": "[]",
    "hw/e.py": "",
    "hw/f/array.sv": "module array; endmodule",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # What digest_of remembers is of trees that do not change while a process runs.
    digest_of.cache_clear()
    return tmp_path


def test_sources_are_what_is_imported_and_what_lies_beside_it(tree: Path) -> None:
    found = {str(path.relative_to(tree)) for path in modules_reached("sim.a", tree)}
    assert found == {"sim/a.py", "sim/b.py", "hw/c/__init__.py", "hw/c/d.py", "hw/e.py"}
    sources = [str(path.relative_to(tree)) for path in sources_of("sim.a", root=tree)]
    assert sources == sorted([*found, "hw/c/array.sv", "hw/c/data/table.json"])


@pytest.mark.parametrize("name", ["sim/b.py", "hw/c/d.py", "hw/e.py", "hw/c/array.sv", "hw/c/data/table.json"])
def test_a_changed_source_is_another_version(tree: Path, name: str) -> None:
    before = digest_of("sim.a", root=tree)
    (tree / name).write_text((tree / name).read_text() + " ")
    digest_of.cache_clear()
    assert digest_of("sim.a", root=tree) != before


def test_a_moved_file_is_another_version(tree: Path) -> None:
    before = digest_of("sim.a", root=tree)
    (tree / "hw/c/data/table.json").rename(tree / "hw/c/table.json")
    digest_of.cache_clear()
    assert digest_of("sim.a", root=tree) != before


@pytest.mark.parametrize("name", ["hw/c/unused.py", "hw/f/array.sv"])
def test_what_is_not_reached_changes_nothing(tree: Path, name: str) -> None:
    before = digest_of("sim.a", root=tree)
    (tree / name).write_text("other")
    digest_of.cache_clear()
    assert digest_of("sim.a", root=tree) == before


def test_the_ring_model_is_made_from_the_hardware_and_every_model() -> None:
    made_from = {str(path.relative_to(ROOT)) for path in sources_of(fast_model.__name__)}
    models = {str(path.relative_to(ROOT)) for kind in ("*.sv", "*.cpp") for path in (ROOT / "sim/models").glob(kind)}
    assert models
    assert models <= made_from
    assert {"hw/node.py", "hw/tracker/bank.py", "sim/models/gpu.py", "hw/export/verilog.py"} <= made_from
    assert not {path for path in made_from if path.startswith(("tb/", "sim/cli", "sim/report", "sim/experiments"))}


def test_a_point_is_made_from_what_simulates_it_and_no_more() -> None:
    made_from = {str(path.relative_to(ROOT)) for path in sources_of("sim.experiments.experiment")}
    assert {"sim/__init__.py", "sim/workloads/sublayer.py", "sim/workloads/data/calibration.json"} <= made_from
    assert not {path for path in made_from if path.startswith(("tb/", "sim/report", "sim/cli"))}


def test_a_header_of_a_simulator_is_what_its_files_include() -> None:
    texts = {"here.cpp": '#include "gpu_ports.h"\n#include <cstdio>\n#include "mirror.h"\n', "bits.h": "// made"}
    assert set(included_texts(texts)) == {"mirror.h"}
    assert set(included_texts({"here.cpp": texts["here.cpp"]})) == {"mirror.h", "bits.h"}


def test_every_header_is_included_by_a_simulator() -> None:
    ends = ["fault_server.h", "sequence_server.h", "single_run.h", "switch_plane.h", "no_switch.h", "gpu_of_lanes.h"]
    texts = model_texts(fast_model.SYSTEM_SOURCES) | {"made.h": "".join(f'#include "{name}"\n' for name in ends)}
    assert set(included_texts(texts)) == {path.name for path in FOLDER.glob("*.h")}
