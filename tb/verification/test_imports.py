"""Which way the house looks: `tb` -> `sim` -> `hw`, and within `sim` from higher packages to lower ones."""

from itertools import pairwise
from pathlib import Path

import pytest

from sim.simulator.sources import imported

ROOT = Path(__file__).parents[2]
SIM_ORDER = (
    "errors",
    "files",
    "golden",
    "host",
    "models",
    "topologies",
    "collectives",
    "workloads",
    "simulator",
    "benches",
    "experiments",
    "faults",
    "sequences",
    "report",
    "cli",
)
"""Lower packages first: each imports only those before it."""
ALLOWED = {"hw": {"hw"}, "sim": {"hw", "sim"}, "tb": {"hw", "sim", "tb"}}


def _errors(root: Path) -> list[str]:
    """One line for each import that looks the wrong way in the tree below `root`."""
    wrong = []
    for top, allowed in ALLOWED.items():
        for path in sorted((root / top).rglob("*.py")):
            package = ".".join(path.relative_to(root).parent.parts)
            for name in set(imported(path, package)):
                parts = name.split(".")
                if parts[0] in ALLOWED and parts[0] not in allowed:
                    wrong.append(f"{path.relative_to(root)} imports {name}")
                if top == "sim" and len(parts) == 2 and parts[0] == "sim":
                    own = path.relative_to(root / "sim").parts[0].removesuffix(".py")
                    if own != "__init__" and _floor(parts[1]) > _floor(own):
                        wrong.append(f"{path.relative_to(root)} imports {name}, which is above it")
    golden = sorted((root / "sim" / "golden").glob("*.py"))
    wrong += [
        f"{path.name} of the golden models imports {name}"
        for path in golden
        for name in sorted(set(imported(path, "sim.golden")))
        if name.split(".")[0] in ALLOWED and name != "sim" and not name.startswith("sim.golden")
    ]
    return wrong


def _floor(package: str) -> int:
    return SIM_ORDER.index(package)


def test_imports_look_one_way():
    assert not _errors(ROOT)


def test_every_package_of_sim_has_its_place():
    found = {
        path.name.removesuffix(".py") for path in (ROOT / "sim").iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert found - {"__init__", "__pycache__"} == set(SIM_ORDER)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("hw/node.py", "from sim.errors import UsageError"),
        ("sim/cli/run.py", "import tb.runner"),
        ("sim/host/tiling.py", "def f():\n    from sim.models.gpu import Gpu"),
        ("sim/golden/ring.py", "from sim.errors import UsageError"),
        ("sim/golden/tiles.py", "from hw.messages import Access"),
        ("hw/tracker/bank.py", "from ...sim import errors"),
    ],
)
def test_an_import_the_wrong_way_is_found(tmp_path, file, text):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert _errors(tmp_path)


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(SIM_ORDER[2:])))
def test_an_import_of_the_package_above_is_found(tmp_path: Path, lower: str, higher: str) -> None:
    folder = tmp_path / "sim" / lower
    folder.mkdir(parents=True)
    (folder / "part.py").write_text(f"from sim.{lower} import other")
    assert not _errors(tmp_path)
    (folder / "part.py").write_text(f"from sim.{higher}.part import other")
    assert _errors(tmp_path)


def test_what_is_outside_of_the_packages_imports_no_test() -> None:
    outside = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "typings").rglob("*.py")]
    assert outside
    assert not {name for path in outside for name in imported(path, "") if name.split(".")[0] == "tb"}
