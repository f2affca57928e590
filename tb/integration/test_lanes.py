"""Rings of nodes whose memory side stands in lanes: as exact as those of one lane, in every bit and every counter."""

import json
from typing import Any
from unittest.mock import patch

import pytest

from hw.config import ConfigurationError, preset
from hw.send_table import OffsetHigh, SendWord
from sim.errors import UsageError
from sim.experiments.catalogue import collective, own, shape
from sim.experiments.experiment import run_experiment, run_with_output
from sim.experiments.hardware import configuration
from sim.experiments.regression import quiet
from sim.experiments.spec import Spec
from sim.experiments.timeline import Timeline
from sim.host.limits import DriverError
from sim.host.range_entries import send_words
from sim.simulator import fast_model
from tb.drivers.payload import unpack

TWO_LANES = (("channels", 2), ("lanes", 2))


def ring(lanes: int, **fields: Any) -> Spec:
    """A ring of nodes with four channels in `lanes` lanes: tiles ragged in both directions, one WF tile to a block,
    so that some blocks have no sector in a lane."""
    usual = {"gpus": 3, "shape": (3 * 45, 200, 0), "tile": (16, 64), "wfs": 8, "dma_block": 1, "alone": False}
    return shape(**{"preset": "quad", "settings": (("lanes", lanes),), **usual, **fields})


def small(**fields: Any) -> Spec:
    """The same of nodes with two lanes of a channel each, which are built sooner."""
    return ring(2, preset="paper", settings=TWO_LANES, **fields)


@pytest.mark.parametrize("lanes", [pytest.param(1, marks=pytest.mark.wide), pytest.param(2, marks=pytest.mark.wide), 4])
def test_rings_of_lanes(lanes: int) -> None:
    with quiet():
        result = run_experiment(ring(lanes))
    assert result["errors"] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"stalls": 30, "direction": "ccw"},
        {"dtype": "fp32", "initial": "zeroing", "wfs": 2, "dma_block": 2},
        {"gpus": 4, "shape": (4 * 32, 96, 64), "tile": (32, 32), "wfs": 4, "dma_block": 4, "bit_errors": 1e-6},
    ],
)
def test_rings_of_four_lanes_in_other_ways(fields: dict[str, Any]) -> None:
    with quiet():
        result = run_experiment(ring(4, **fields))
    assert result["errors"] == []


def all_of(spec: Spec, apart: bool) -> tuple[str, bytes]:
    """Every figure of a run but times, and the data, with lanes that are models of their own or in one model."""
    with fast_model.changed_hardware(), patch.object(fast_model, "lanes_apart", lambda config: apart), quiet():
        result, reduced = run_with_output(spec)
    assert result["errors"] == []
    assert reduced is not None
    del result["seconds"], result["kilocycles_per_second"], result["kilocycles_per_processor_second"]
    return json.dumps(result, sort_keys=True, default=str), reduced.tobytes()


PROGRAM = collective(
    "direct-all-gather-gemm", 3, wiring="mesh", preset="paper", settings=TWO_LANES, shape=(3 * 45, 200, 64), alone=False
)
"""Of compute units whose requests are made in the lanes, where these are apart."""


@pytest.mark.slow
@pytest.mark.parametrize("spec", [small(stalls=10), PROGRAM], ids=["ring", "program"])
def test_lanes_apart_do_the_same_in_every_cycle_as_in_one_model(spec: Spec) -> None:
    assert all_of(spec, True) == all_of(spec, False)


def test_what_lanes_did_is_one_timeline() -> None:
    """Every packet that left or came is on the track of its lane of a link."""
    recorded: list[Timeline] = []
    with quiet():
        result, _ = run_with_output(small(), record=lambda timeline, _: recorded.append(timeline))
    assert result["errors"] == []
    (timeline,) = recorded
    for rank in range(3):
        packets = [mark for port in range(4) for mark in timeline.on(rank, f"link {port} out")]
        arrived = [mark for port in range(4) for mark in timeline.on(rank, f"link {port} in")]
        counters = result["counters"][rank]
        assert len(packets) == counters["link0_sent_packets"] + counters["link1_sent_packets"] > 0
        assert len(arrived) == counters["link0_received_packets"] + counters["link1_received_packets"]


def test_lanes_divide_the_channels() -> None:
    with pytest.raises(ConfigurationError, match=r"lanes must divide channels \(2\); got 4"):
        preset("paper", channels=2, lanes=4)
    with pytest.raises(UsageError, match="lanes must be one of 1, 2, 4, 8, 16, 32; got 3"):
        configuration("quad", {"lanes": 3})


def test_a_link_is_as_fast_as_its_lanes() -> None:
    with pytest.raises(ConfigurationError, match="at most 256 GB/s with 4 channels"):
        preset("quad", link_bandwidth=300.0)
    assert preset("quad", lanes=2, link_bandwidth=300.0).lane_bytes_per_cycle == 300 * 4 / 32 / 2
    with pytest.raises(ConfigurationError, match="at most 512 GB/s with 4 channels in 2 lanes"):
        preset("quad", lanes=2, link_bandwidth=600.0)


def test_a_send_stays_in_its_lane() -> None:
    """Sends by whole turns of the interleave, both ways; all others are refused, with the turn."""
    config = preset("quad", lanes=2)
    for offset in (0, 32, -32, 320):
        words = send_words(config, peer=1, offset=offset)
        high = unpack(OffsetHigh, words[SendWord.OFFSET_HIGH])["offset"]
        moved = offset % (1 << config.va_sector_bits)
        assert (words[SendWord.OFFSET_LOW], high) == (moved & 0xFFFF_FFFF, moved >> 32)
    for offset in (8, 16, 33, -8):
        with pytest.raises(DriverError, match=rf"multiple of 32 sectors.*lanes=2\); got {offset}"):
            send_words(config, peer=1, offset=offset)
    send_words(preset("quad"), peer=1, offset=8)


@pytest.mark.wide
def test_lanes_on_threads_do_the_same() -> None:
    """One GPU of two lanes at full size, alone on one thread and shared by two."""
    spec = own((512, 256, 128), tp=4, variant="t3-mca", channels=2, settings=(("lanes", 2),))
    found = []
    for threads in (1, 2):
        with quiet():
            result = run_experiment(spec, threads=threads)
        assert result["errors"] == []
        del result["seconds"], result["kilocycles_per_second"], result["kilocycles_per_processor_second"]
        found.append(result)
    assert found[0] == found[1]
