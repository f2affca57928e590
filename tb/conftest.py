"""Settings of every test run: property tests draw the same examples each time, and without a time limit per example."""

import os

import pytest
from hypothesis import settings

from sim.simulator import coverage_hook

settings.register_profile("t3", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("t3")


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to repeat a simulation with the same random choices."""
    seed = os.environ.get("T3_SEED")
    return f"simulations: seed {seed}" if seed else "simulations: random seeds (set T3_SEED to repeat one)"


class FailuresAtOnce:
    """Says of a test that failed which it was, and how, when it does: a run that is cut off has no summary."""

    def __init__(self, terminal: pytest.TerminalReporter):
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"{report.nodeid} failed ({report.when})\n{report.longreprtext}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Tell failures at once; measure whole rings, and sample the ALU's operands, when coverage is collected."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        config.pluginmanager.register(FailuresAtOnce(terminal))
    if os.environ.get("T3_COVERAGE", "0") not in ("", "0"):
        os.environ[coverage_hook.VARIABLE] = "tb.coverage_runs"
        import sim.benches.vectors
        from tb.functional_coverage import collection

        sim.benches.vectors.observers.append(collection.observe_vectors)
