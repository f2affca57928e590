"""The timeline of a run, read back from the file for Perfetto: what it must show of any run, and that it is off by
default."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from hw.config import SECTOR_BYTES
from sim.experiments.catalogue import collective, own, shape
from sim.experiments.experiment import run_with_output
from sim.experiments.job import program_of
from sim.experiments.regression import quiet
from sim.experiments.results import Result
from sim.experiments.spec import Spec
from sim.experiments.timeline import Timeline
from sim.report.perfetto_trace import BEFORE, write_perfetto
from sim.report.timeline_page import RIGHT, WIDTH, page

GPUS, TILES, STEPS = 3, 8, 2
"""WF tiles of a chunk, and steps around the ring."""
SPEC = shape(name="timeline", gpus=GPUS, shape=(96, 64, 32), tile=(16, 32), wfs=2, alone=True)
ACCESSES = ("_read", "_write", "_update")
COMPLETING = ("last commits", "doorbell")
"""Tracks of what completes a tile."""
LANES = 2
OF_LANES = replace(SPEC, settings=(*SPEC.settings, ("channels", LANES), ("lanes", LANES)))


@dataclass
class Slice:
    """A slice or a moment of the file: in which process, on which track, when, and its arrows."""

    rank: int
    track: str
    name: str
    begin: int
    end: int
    details: dict[str, int]
    effects: list[int] = field(default_factory=list)
    causes: list[int] = field(default_factory=list)


def read_back(path: Path) -> tuple[list[Slice], dict[tuple[int, str], list[tuple[int, float]]]]:
    """Slices and counters of a file, by the rules of the format and nothing else."""
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    ranks, tracks = {}, {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            described = packet.track_descriptor
            if described.HasField("process"):
                ranks[described.uuid] = described.process.pid - 1
            else:
                tracks[described.uuid] = (ranks[described.parent_uuid], described.name)
    slices: list[Slice] = []
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    counters: dict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event, at = packet.track_event, packet.timestamp - BEFORE
        rank, track = tracks[event.track_uuid]
        if event.type == TrackEvent.TYPE_COUNTER:
            counters[rank, track].append((at, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            open_slices[event.track_uuid].pop().end = at
        else:
            details = {item.name: item.int_value for item in event.debug_annotations}
            arrows = (list(event.flow_ids), list(event.terminating_flow_ids))
            slices.append(Slice(rank, track.partition(" #")[0], event.name, at, at, details, *arrows))
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid].append(slices[-1])
    assert not any(open_slices.values())
    return slices, counters


def wrong_blocks(slices: list[Slice]) -> list[str]:
    """DMA blocks that no tile of their GPU has completed, or that begin before a tile's last commit or doorbell."""
    causes = {number: item for item in slices for number in item.effects}
    answer = []
    for block in (item for item in slices if item.track == "DMA blocks"):
        tiles = [causes[number] for number in block.causes]
        if not tiles or any(tile.rank != block.rank or tile.track not in COMPLETING for tile in tiles):
            answer.append(f"{block.name} of GPU {block.rank} comes from {tiles}")
        if any(tile.end > block.begin for tile in tiles):
            answer.append(f"{block.name} of GPU {block.rank} begins before its tiles are complete")
    return answer


def record(spec: Spec, path: Path) -> tuple[Path, Result, Timeline]:
    kept = []

    def write(timeline: Timeline, result: Result) -> None:
        kept.append(timeline)
        write_perfetto(path, timeline, "a run")

    with quiet():
        result, _ = run_with_output(spec, record=write)
    assert result["errors"] == []
    return path, result, kept[0]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result, Timeline]:
    return record(SPEC, tmp_path_factory.mktemp("timeline") / "run.pftrace")


@pytest.fixture(scope="module")
def recorded_lanes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result, Timeline]:
    return record(OF_LANES, tmp_path_factory.mktemp("timeline") / "lanes.pftrace")


@pytest.mark.parametrize("run", ["recorded", pytest.param("recorded_lanes", marks=pytest.mark.wide)])
def test_a_block_begins_after_its_tiles_and_arrives_at_the_neighbour(run: str, request: pytest.FixtureRequest) -> None:
    slices, _ = read_back(request.getfixturevalue(run)[0])
    blocks = [item for item in slices if item.track == "DMA blocks"]
    assert len(blocks) == GPUS * (STEPS - 1) * TILES // SPEC.wfs
    assert wrong_blocks(slices) == []
    effects = {number: item for item in slices for number in item.causes}
    for block in blocks:
        arrived = [effects[number] for number in block.effects]
        assert len(arrived) == len(block.causes) == SPEC.wfs
        assert {tile.rank for tile in arrived} == {(block.rank + 1) % GPUS}
        assert all(tile.end > block.begin and tile.details["wg"] == block.details["wg"] for tile in arrived)


@pytest.mark.parametrize(
    ("name", "wiring"),
    [
        ("ring-all-reduce", "ring"),
        ("direct-all-reduce", "switch"),
        ("all-to-all-dma", "mesh"),
        ("direct-all-gather-gemm", "mesh"),
    ],
)
def test_blocks_of_a_program_go_where_it_sends_them(name: str, wiring: str, tmp_path: Path) -> None:
    """To other chunks there, whose tiles have other numbers; to several peers at once; rung for by a doorbell."""
    spec = collective(name, GPUS, wiring=wiring, shape=(60, 40, 16), tile=(16, 32), wfs=4, dtype="int32")
    path, result, _ = record(spec, tmp_path / "run.pftrace")
    slices, _ = read_back(path)
    effects = {number: item for item in slices for number in item.causes}
    assert wrong_blocks(slices) == []
    for rank, counted in enumerate(result["counters"]):
        blocks = [item for item in slices if (item.rank, item.track) == (rank, "DMA blocks")]
        regions = list(program_of(spec).regions(rank))
        sends = [regions[block.details["range"]].sends for block in blocks]
        assert len(blocks) == counted["dma_blocks"]
        if rank == 0:
            sampled = {kind: sum(counts) for kind, counts in result["timeline"].items() if kind.endswith(ACCESSES)}
            moved = sum(count for name, count in counted.items() if name.startswith("sectors_"))
            # A kernel ends when its last stores are taken, which are then on their way to the bank.
            assert 0 <= moved - sum(sampled.values()) <= result["occupancy_peak"]
        for block, peers in zip(blocks, sends, strict=True):
            reached = [effects[number] for number in block.effects]
            assert all(tile.end > block.begin for tile in reached)
            assert Counter(tile.rank for tile in reached) == {send.peer: len(block.causes) for send in peers}


@pytest.mark.wide
def test_one_node_that_stands_for_all_is_its_own_neighbour(tmp_path: Path) -> None:
    """What it sends arrives at it under the number of another chunk: every tile of every block."""
    path, result, _ = record(own((1024, 1184, 512), tp=4, variant="t3-paced"), tmp_path / "run.pftrace")
    slices, _ = read_back(path)
    blocks = [item for item in slices if item.track == "DMA blocks"]
    effects = {number: item for item in slices for number in item.causes}
    assert len(blocks) == result["counters"][0]["dma_blocks"]
    assert wrong_blocks(slices) == []
    tiles = result["spec"]["shape"][1] // 128 + 1
    for block in blocks:
        arrived = [effects[number] for number in block.effects]
        assert [tile.details["wf"] for tile in arrived] == list(range(len(block.causes)))
        assert {tile.details["wg"] % tiles for tile in arrived} == {block.details["wg"] % tiles}
        assert {tile.details["wg"] != block.details["wg"] for tile in arrived} == {True}
        assert all(tile.end > block.begin for tile in arrived)


@pytest.mark.wide
def test_a_block_of_several_lanes_lasts_until_its_last_packet_in_any(recorded_lanes) -> None:
    path, result, _ = recorded_lanes
    slices, _ = read_back(path)
    for rank, counted in enumerate(result["counters"]):
        own = [item for item in slices if item.rank == rank]
        blocks = [item for item in own if item.track == "DMA blocks"]
        assert len(blocks) == counted["dma_blocks"]
        packets = [item for item in own if item.track.startswith("link ") and item.track.endswith(" out")]
        for block in blocks:
            of_block = [item for item in packets if f" WG {block.details['wg']} " in item.name]
            assert len({item.track for item in of_block}) == LANES
            assert block.end == max(item.end for item in of_block)


def test_a_block_that_begins_too_early_is_found(recorded) -> None:
    slices, _ = read_back(recorded[0])
    block = next(item for item in slices if item.track == "DMA blocks")
    block.begin = -1
    assert len(wrong_blocks(slices)) == 1


def test_what_is_drawn_is_what_the_counters_counted(recorded) -> None:
    path, result, _ = recorded
    slices, counters = read_back(path)
    for rank, counted in enumerate(result["counters"]):
        own = [item for item in slices if item.rank == rank]
        assert sum(item.track == "last commits" for item in own) == counted["tracker_triggers"]
        assert sum(item.track == "DMA blocks" for item in own) == counted["dma_blocks"]
        # The GEMM alone, before the measured run, sends nothing.
        for port in range(2):
            sent = [item for item in own if item.track == f"link {port} out"]
            assert len(sent) == counted[f"link{port}_sent_packets"]
            received = [item for item in own if item.track == f"link {port} in"]
            assert len(received) == counted[f"link{port}_received_packets"]
        sectors = sum(item.details["sectors"] for item in own if item.track == "last commits")
        assert sectors == counted["tracker_accesses"]
        queue = counters[rank, "DRAM queue 0"]
        assert 0 < max(value for _, value in queue) <= counted["occupancy_peak"]
        assert [item.begin for item in own if item.name == "measured run begins"] == [0]
    bits = SPEC.shape[0] * SPEC.shape[1] * 2
    assert sectors * SECTOR_BYTES == 2 * bits * STEPS // GPUS


def test_workgroups_fill_slots_and_stages_follow_one_another(recorded) -> None:
    slices, _ = read_back(recorded[0])
    for rank in range(GPUS):
        own = [item for item in slices if item.rank == rank]
        workgroups = [item for item in own if item.track.startswith("slot ")]
        assert len({item.details["workgroup"] for item in workgroups}) == GPUS * TILES // SPEC.wfs
        stages = [item for item in own if item.track == "stages"]
        assert [item.name for item in stages[:3]] == ["read", "compute", "store"]
        assert all(one.end <= other.begin for one, other in pairwise(stages))


def test_a_run_that_is_not_recorded_writes_nothing_and_takes_the_same_cycles(recorded) -> None:
    with quiet():
        plain, _ = run_with_output(SPEC)
    assert {name: plain[name] for name in ("cycles", "counters", "dram_sectors")} == {
        name: recorded[1][name] for name in ("cycles", "counters", "dram_sectors")
    }


def test_a_window_of_the_bandwidth_holds_its_mean_until_the_next(recorded) -> None:
    _, result, timeline = recorded
    polygons = re.findall(r'<polygon points="([^"]*)"', page(timeline, result))
    windows = len(result["timeline"]["occupancy"])
    for polygon in polygons:
        corners = [tuple(map(float, corner.split(","))) for corner in polygon.split()]
        assert len(corners) == 4 * windows
        assert max(x for x, _ in corners) <= WIDTH - RIGHT
        assert all(one[1] == other[1] for one, other in zip(corners[::2], corners[1::2], strict=True))


def test_the_page_shows_every_gpu_without_a_script(recorded) -> None:
    text = page(recorded[2], recorded[1])
    assert 'name="viewport"' in text
    assert "<script" not in text
    assert text.count("<svg") == 3
    for rank in range(GPUS):
        assert f">GPU {rank}</text>" in text
    assert f"{GPUS} GPUs simulated" in text
    stages = [mark for rank in range(GPUS) for mark in recorded[2].on(rank, "stages")]
    assert stages
    for mark in stages:
        assert f"<title>{mark.name}: {mark.begin:,} to {mark.end:,}</title>" in text
    for title in ("Space and time", "Bandwidth of GPU 0", "Requests in the DRAM queues"):
        assert f"<h2>{title}</h2>" in text
