"""The whole GPU, 32 channels in eight lanes, as one node: with data in a ring, and with kernels of full size."""

import pytest

from sim.experiments.catalogue import own, shape
from sim.experiments.experiment import run_experiment
from sim.experiments.regression import quiet
from sim.experiments.spec import Spec

RING = shape(
    name="whole-gpus", preset="gpu", gpus=4, shape=(516, 260, 64), tile=(64, 32), stalls=10, seed=7, policy="paced"
)
"""Ragged tiles, and forced pauses."""
KERNELS = own((1024, 1184, 512), tp=4, variant="t3-paced", channels=32)
"""The last tiles of a row are narrower."""
EVICTING = own((1024, 1184, 512), tp=4, variant="t3-mca", channels=32, tracker_ways=1)
"""Counters of all eight banks go to the backing store and come back, sixteen at a time."""


@pytest.mark.slow
@pytest.mark.parametrize("spec", [RING, KERNELS, EVICTING], ids=["ring", "kernels", "evicting"])
def test_the_whole_gpu_is_as_exact_as_a_slice(spec: Spec) -> None:
    with quiet():
        result = run_experiment(spec, threads=0)
    assert result["errors"] == []
    assert all(form["matches"] for form in result["closed_forms"].values())
    if spec is EVICTING:
        assert min(result["tracker"]["evictions"], result["tracker"]["refetches"]) > 100
