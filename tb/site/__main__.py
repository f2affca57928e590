"""`python -m tb.site`: make the documentation site."""

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from amaranth.hdl import UnusedElaboratable

from sim.errors import MachineError
from tb.site.build import ROOT, build


def main(out: Annotated[Path, typer.Option(help="Folder of the site.")] = ROOT / "build" / "docs") -> None:
    """Make the documentation site of this checkout: HTML in OUT/html, its sources in OUT/source."""
    # Blocks are looked at, and not built.
    warnings.simplefilter("ignore", UnusedElaboratable)
    try:
        page = build(out)
    except MachineError as error:
        print(f"make docs: {error}", file=sys.stderr)
        raise typer.Exit(3) from error
    print(f"page: {page}")


if __name__ == "__main__":
    typer.run(main)
