"""Puts the pages together and has Sphinx make HTML of them, every warning an error."""

import shutil
import subprocess
import sys
from pathlib import Path

from sim.errors import MachineError
from tb.site import block_pages, handshakes, reference
from tb.site.copied import COPIED, figures_of, page_text

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
CONTENTS = """
```{toctree}
:hidden:
:caption: Use

tutorial/index
reference/index
examples
```

```{toctree}
:hidden:
:caption: Measured

evaluation
synthesis/area
synthesis/timing
synthesis/alternatives
synthesis/protection
```

```{toctree}
:hidden:
:caption: Project

decisions
contributing
traps
```
"""
"""The order of the site, behind the text of README."""


def sources(folder: Path, root: Path = ROOT) -> None:
    """Write the source of every page into `folder`, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "pages", folder)
    shutil.copytree(HERE / "static", folder / "static")
    shutil.copytree(root / "examples", folder / "examples")
    (folder / "examples" / "README.md").unlink()
    shutil.copy(HERE / "conf.py", folder)
    (folder / "figures").mkdir()
    for file, page in COPIED.items():
        _write(folder / page, page_text(root, file) + (CONTENTS if page == "index.md" else ""))
        for figure in figures_of(root, file):
            shutil.copy(figure, folder / "figures")
    _write(folder / "reference" / "results.md", reference.results_page())
    _write(folder / "reference" / "registers.md", reference.registers_page())
    _write(folder / "reference" / "commands.md", reference.commands_page())
    _write(folder / "reference" / "testplan.md", reference.testplan_page(root))
    _write(folder / "reference" / "structs.md", block_pages.structs_page())
    _write(folder / "reference" / "handshakes.md", handshakes.page())
    for name, diagram in handshakes.DIAGRAMS.items():
        _write(folder / "figures" / f"{name}.svg", handshakes.svg(diagram.make()))
    _write(folder / "reference" / "blocks" / "index.md", block_pages.index_page())
    for name, text in block_pages.pages(root):
        _write(folder / "reference" / "blocks" / f"{name}.md", text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def build(out: Path, root: Path = ROOT) -> Path:
    """The site in folder `out` (`out/html/index.html` is returned). Raises :class:`sim.errors.MachineError` with
    Sphinx's own words when there is a warning."""
    sources(out / "source", root)
    html = out / "html"
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--fresh-env"]
    command += ["--builder", "html", str(out / "source"), str(html)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    if done.returncode:
        raise MachineError(f"the documentation has errors\n{done.stderr}")
    return html / "index.html"
