"""Settings of the tests of single blocks."""

import pytest


@pytest.fixture(autouse=True)
def wrong_designs_are_not_measured(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that end in `_caught` or `_noticed` are of wrong designs, whose coverage nobody wants: with counters of
    toggles they take many times as long to build."""
    if request.node.originalname.endswith(("_caught", "_noticed")):
        monkeypatch.setenv("T3_COVERAGE", "0")
