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


def pytest_configure(config: pytest.Config) -> None:
    """Measure whole rings, and sample the operands of the ALU's benches, when coverage is collected."""
    if os.environ.get("T3_COVERAGE", "0") not in ("", "0"):
        os.environ[coverage_hook.VARIABLE] = "tb.coverage_runs"
        import sim.benches.vectors
        from tb.functional_coverage import collection

        sim.benches.vectors.observers.append(collection.observe_vectors)
