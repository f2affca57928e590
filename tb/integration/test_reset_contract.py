"""What the node does depends on no memory's contents before reset: the same run from garbage, cycle for cycle."""

import re
from typing import Any
from unittest.mock import patch

import pytest

from sim.experiments.catalogue import shape
from sim.experiments.experiment import run_experiment
from sim.experiments.regression import quiet
from sim.simulator import fast_model

_MEMORY = re.compile(r"^  reg (?:\[(\d+):0\] )?(\S+ )\[(\d+):0\];\n", re.MULTILINE)
_MODULE = re.compile(r"^module (\S+?)\(.*?^endmodule$", re.MULTILINE | re.DOTALL)


def with_garbage(text: str, inside: str) -> tuple[str, int]:
    """`text` with random contents in the memories of modules whose names begin with `inside`; how many those are."""
    count = 0

    def fill(memory: re.Match[str]) -> str:
        nonlocal count
        count += 1
        words = ", ".join(["$urandom"] * (int(memory[1] or 0) // 32 + 1))
        name, last = memory[2], memory[3]
        return f"{memory[0]}  initial for (int n = 0; n <= {last}; n++) {name}[n] = {{{words}}};\n"

    def module(found: re.Match[str]) -> str:
        return _MEMORY.sub(fill, found[0]) if found[1].startswith(inside) else found[0]

    return _MODULE.sub(module, text), count


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "protection"), [(1, "links"), (2, "links"), (3, "all")])
def test_memories_may_start_with_anything(seed: int, protection: str) -> None:
    """Three GPUs, a GEMM and its reduce-scatter: right, and equal in every figure, from zeros and from garbage."""
    settings = (("protection", protection),)
    spec = shape(gpus=3, shape=(192, 64, 32), tile=(64, 64), preset="tiny", alone=False, settings=settings)
    sources = fast_model._gpu_sources
    filled = []

    def from_garbage(*arguments: Any) -> dict[str, str]:
        texts: dict[str, str] = sources(*arguments)
        text, count = with_garbage(texts["gpu.sv"], "gpu__node")
        filled.append(count)
        return {**texts, "gpu.sv": f"// seed {seed}\n{text}"}

    with quiet():
        expected = run_experiment(spec)
        with fast_model.changed_hardware(), patch.object(fast_model, "_gpu_sources", from_garbage):
            result = run_experiment(spec)
    assert filled
    assert min(filled) > 20
    assert (expected["errors"], result["errors"]) == ([], [])
    assert result["cycles"] == expected["cycles"]
    assert result["counters"] == expected["counters"]
