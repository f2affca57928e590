"""hypothesis inside a simulation: examples are drawn, run in simulated time one after the other, and shrunk.

A failing test prints the smallest example that hypothesis found ("Failing test case: ...").
"""

from collections.abc import Awaitable, Callable
from typing import Any

import cocotb
from cocotb.task import bridge, resume
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy


async def holds_for_all(
    strategy: SearchStrategy[Any], holds: Callable[[Any], Awaitable[None]], examples: int = 50
) -> None:
    """Run `holds` on `examples` values of `strategy`; raises what it raises for the smallest failing one.

    `holds` has to leave the design ready for the next example. The examples follow from cocotb's seed.
    """

    @resume
    async def try_one(value: Any) -> None:
        await holds(value)

    @seed(cocotb.RANDOM_SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(value=strategy)
    def search(value: Any) -> None:
        try_one(value)

    await bridge(search)()
