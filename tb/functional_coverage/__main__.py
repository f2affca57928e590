"""`python -m tb.functional_coverage`: the report of what test runs with T3_COVERAGE=1 left; exit code 1 with holes."""

import typer

from tb.functional_coverage.collection import FOLDER
from tb.functional_coverage.plan import GROUPS
from tb.functional_coverage.report import lines, merge


def main() -> None:
    """Merge build/coverage/functional/*.xml to build/coverage/functional.xml and print each group's bins and holes."""
    results = merge(FOLDER, FOLDER.with_suffix(".xml"), GROUPS)
    typer.echo("\n".join(lines(results)))
    if any(result.holes for result in results):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
