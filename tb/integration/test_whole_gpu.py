"""The whole GPU, 32 channels in eight lanes, as one node: with data in a ring, and with kernels of full size."""

import pytest

from hw.config import preset
from sim.experiments.catalogue import own, shape
from sim.experiments.experiment import run_experiment, run_with_output
from sim.experiments.regression import quiet
from sim.experiments.spec import Spec
from sim.experiments.timeline import Timeline

RING = shape(
    name="whole-gpus", preset="gpu", gpus=4, shape=(516, 260, 64), tile=(64, 32), stalls=10, seed=7, policy="paced"
)
"""Ragged tiles, and forced stalls."""
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


@pytest.mark.slow
def test_the_timeline_of_a_whole_gpu_has_what_every_lane_did() -> None:
    kept: list[Timeline] = []
    with quiet():
        result, _ = run_with_output(KERNELS, record=lambda timeline, _: kept.append(timeline), threads=0)
    assert result["errors"] == []
    (timeline,), (counted,), config = kept, result["counters"], preset("gpu")
    blocks = timeline.on(0, "DMA blocks")
    assert len(blocks) == counted["dma_blocks"]
    complete = {number: mark.end for mark in timeline.marks for number in mark.effects}
    assert all(block.causes for block in blocks)
    assert all(complete[number] <= block.begin for block in blocks for number in block.causes)
    for lane in range(config.lanes):
        assert timeline.on(0, f"link {lane} out")
    queues = {curve.track for curve in timeline.curves}
    assert queues == {f"{name} {channel}" for name in ("DRAM queue", "threshold") for channel in range(config.channels)}
