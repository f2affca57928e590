"""The host programs what a brute-force look at the tiles says, and refuses what the hardware cannot hold."""

import math
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw.config import preset
from hw.messages import Access, DataType, Mapping, Policy, Threshold, TrafficClass
from hw.range_table import ENTRY_WORDS, WORDS, Word
from hw.registers.map import SEND_BASE, WINDOW_BASE, find_register
from hw.send_table import SendWord
from sim.collectives.known import PROGRAMS
from sim.experiments.array_model import INPUT_SECTORS, ArrayWork
from sim.experiments.catalogue import collective, layer, shape
from sim.experiments.experiment import job_of, run_experiment, work_of
from sim.experiments.program_model import ProgramWork
from sim.host.address_space import ARRAY_BASE, input_base
from sim.host.limits import DriverError
from sim.host.program import WRITE, command
from sim.host.range_entries import divisibility, range_words, send_words, trigger_entries
from sim.host.register_writes import (
    arbiter_writes,
    arm_writes,
    link_writes,
    pace_writes,
    range_writes,
    register_write,
    send_writes,
    wide_writes,
    window_write,
)
from sim.host.tiling import Tiling
from tb.golden.tiles import count_blocks, count_tiles

PAPER = preset("paper")


def fields(words, word):
    """Fields of a word as numbers."""
    return {name: words[word] >> at.offset & ((1 << at.width) - 1) for name, at in WORDS[word]}


@st.composite
def tilings(draw):
    dtype_bytes = draw(st.sampled_from((2, 4)))
    wfs = draw(st.integers(1, 8))
    tile_rows = wfs * draw(st.integers(1, 5))
    tile_columns = 32 // dtype_bytes * draw(st.integers(1, 3))
    columns = draw(st.integers(1, 5 * tile_columns))
    rows = draw(st.integers(1, 3 * tile_rows))
    pitch = math.ceil(columns * dtype_bytes / 32) + draw(st.sampled_from((0, 0, 1, 7)))
    return Tiling(rows, columns, tile_rows, tile_columns, wfs, dtype_bytes, pitch)


def golden(tiling):
    return count_tiles(
        tiling.rows,
        tiling.columns,
        tiling.tile_rows,
        tiling.tile_columns,
        tiling.wfs,
        tiling.dtype_bytes,
        tiling.pitch_sectors,
    )


def dtype_of(tiling):
    return DataType.FP16 if tiling.dtype_bytes == 2 else DataType.FP32


def hardware_view(words, relative, wf):
    """Threshold and rows of a WF tile as the hardware finds them from the words alone; 0 rows: it does not exist."""
    ragged, grouping = fields(words, Word.RAGGED), fields(words, Word.GROUPING)
    blocks, rows, row_bytes = fields(words, Word.BLOCKS), fields(words, Word.ROWS), fields(words, Word.ROW_BYTES)
    product = (relative + 1) * ragged["inverse"] % 65536
    rotated = (product >> grouping["shift"] | product << 16 - grouping["shift"]) % 65536
    right = rotated <= grouping["limit"]
    bottom = relative >= ragged["bottom"]
    width = row_bytes["right"] if right else row_bytes["body"]
    if wf >= (blocks["bottom_wfs"] if bottom else grouping["wfs"]):
        return 0, 0, width
    if bottom and wf == blocks["bottom_full"]:
        return words[Word.THRESHOLD_CORNER if right else Word.THRESHOLD_BOTTOM], rows["partial"], width
    return words[Word.THRESHOLD_RIGHT if right else Word.THRESHOLD_BODY], rows["full"], width


@settings(max_examples=300, deadline=None)
@given(tilings(), st.integers(1, 3), st.integers(0, 100))
def test_words_describe_every_tile(tiling, updates, wg_base):
    base = 12345
    words = range_words(
        PAPER, base=base, tiling=tiling, tracked=True, updates=updates, dtype=dtype_of(tiling), wg_base=wg_base
    )
    tiles = golden(tiling)
    workgroups = fields(words, Word.WORKGROUPS)
    assert workgroups == {"base": wg_base, "count": len({workgroup for workgroup, _ in tiles})}
    assert words[Word.WF_TOTAL] == len(tiles)
    for relative in range(workgroups["count"]):
        for wf in range(fields(words, Word.GROUPING)["wfs"]):
            threshold, rows, width = hardware_view(words, relative, wf)
            found = tiling.wf_tile(relative, wf)
            tile = tiles.get((relative, wf))
            if tile is None:
                assert rows == 0 == found.rows
                continue
            assert threshold == tile.bytes * updates
            assert rows == len(tile.rows) == found.rows
            assert width == len(tile.columns) * tiling.dtype_bytes == found.row_bytes
            # The DMA engine walks from the block's first tile by strides; every sector must be met exactly once.
            start = tiling.wf_tile(relative, 0).offset + wf * words[Word.WF_STRIDE]
            assert start == min(tile.sectors) == found.offset
            walked = {}
            for row in range(rows):
                for at in range(0, width, 32):
                    walked[start + row * words[Word.PITCH] + at // 32] = min(32, width - at)
            assert walked == tile.sectors
    assert max(sector for tile in tiles.values() for sector in tile.sectors) < tiling.sectors
    assert words[Word.BASE_LOW] == base and words[Word.LIMIT_LOW] == base + tiling.sectors


@settings(max_examples=300, deadline=None)
@given(tilings(), st.data(), st.sampled_from((1, 2, 4)))
def test_blocks_have_their_own_trigger_entries(tiling, draws, banks):
    config = preset("paper", tracker_banks=banks)
    block_wfs = draws.draw(st.integers(1, tiling.wfs))
    base = banks * draws.draw(st.integers(0, 50))
    words = range_words(
        config, base=0, tiling=tiling, tracked=True, dtype=dtype_of(tiling), block_wfs=block_wfs, block_base=base
    )
    grouping, blocks = fields(words, Word.GROUPING), fields(words, Word.BLOCKS)
    expected = count_blocks(golden(tiling), block_wfs)
    assert tiling.blocks(block_wfs) == len(expected)
    used = {
        (workgroup % banks, base // banks + (workgroup // banks << grouping["block_shift"]) + block)
        for workgroup, block in expected
    }
    assert len(used) == len(expected)
    assert blocks["base"] == base
    last = (base + trigger_entries(config, tiling, block_wfs)) // banks
    assert all(base // banks <= entry < last for _, entry in used)


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 12, 24, 33, 34, 96, 144, 160, 4095, 32768, 65535])
def test_divisibility_constants(divisor):
    inverse, shift, limit = divisibility(divisor)
    for n in [*range(1, 3000), *range(divisor, 65536, divisor), 65535, 32768]:
        product = n * inverse % 65536
        rotated = (product >> shift | product << 16 - shift) % 65536
        assert (rotated <= limit) == (n % divisor == 0)


def test_wrong_divisibility_is_caught(monkeypatch):
    check = test_words_describe_every_tile.hypothesis.inner_test  # type: ignore[attr-defined]
    tiling = Tiling(30, 70, 16, 16, 4)
    check(tiling, 1, 0)
    monkeypatch.setattr("sim.host.range_entries.divisibility", lambda divisor: (*divisibility(divisor)[:2], 65535))
    with pytest.raises(AssertionError):
        check(tiling, 1, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "rows must be a whole number from 1"),
        ({"rows": 2.5}, "rows must be a whole number"),
        ({"tile_rows": 100}, r"tile_rows must be a multiple of wfs \(8\), got 100"),
        ({"wfs": 9}, "wfs must be a whole number from 1 to 8"),
        ({"tile_columns": 24}, "tile_columns must be a multiple of 16"),
        ({"tile_columns": 4096}, "tile_columns must be a whole number from 1 to 2048"),
        ({"dtype_bytes": 3}, "dtype_bytes must be 2 or 4"),
        ({"pitch_sectors": 10}, "pitch_sectors must be a whole number from 32"),
    ],
)
def test_bad_tilings_are_refused(arguments, message):
    with pytest.raises(DriverError, match=message):
        Tiling(**{"rows": 512, "columns": 512, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base": -1}, "base must be"),
        ({"base": 1 << 43}, "base must be"),
        ({"base": (1 << 43) - 5}, "length in sectors must be"),
        ({"first_send": 16}, "first_send must be a whole number from 0 to 15, got 16"),
        ({"sends": 17}, "sends must be a whole number from 0 to 16, got 17"),
        ({"mapping": Mapping.DMA}, "sends must be a whole number from 1 to 16, got 0"),
        ({"tiling": Tiling(64, 64), "mapping": Mapping.REMOTE}, "sends must be a whole number from 1 to 16, got 0"),
        ({"wg_base": 65530}, "wg_base must be"),
        ({"block_wfs": 9}, "block_wfs must be a whole number from 1 to 8"),
        ({"block_base": 4090}, "trigger_blocks must be at least"),
        ({"updates": 9, "tracked": True}, r"WF tile bytes x updates must be .* to 131071, got 147456"),
        ({"updates": 0}, "updates must be"),
        ({"dtype": DataType.FP32}, "dtype FP32 has 4 bytes"),
        ({"mapping": Mapping.DMA, "sends": 1, "tracked": False}, "tracked must be true for a DMA-mapped range"),
        ({"sectors": 5}, "exactly one of tiling and sectors"),
        ({"tiling": None, "sectors": 5, "mapping": Mapping.REMOTE}, "tiling must be given"),
        ({"tiling": Tiling(70000, 64, 1, 16, 1)}, "workgroups must be"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(DriverError, match=message):
        range_words(
            PAPER, **{"base": 0, "tiling": Tiling(1024, 512, 512, 128, 8), "tracked": True, "updates": 2, **arguments}
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"peer": 64}, "send CONTROL.peer must be a whole number from 0 to 63, got 64"),
        ({"offset": 1 << 43}, "^offset must be"),
        ({"wg_offset": 1 << 16}, "wg_offset must be a whole number from -65535 to 65535, got 65536"),
        ({"wg_offset": -(1 << 16)}, "wg_offset must be"),
    ],
)
def test_a_send_that_does_not_fit_is_refused(arguments, message):
    with pytest.raises(DriverError, match=message):
        send_words(PAPER, **{"peer": 1, **arguments})


def test_negative_offsets_wrap():
    words = send_words(PAPER, peer=63, offset=-1, wg_offset=-2, access=Access.UPDATE, traffic_class=TrafficClass.OTHER)
    assert words[SendWord.OFFSET_LOW] | words[SendWord.OFFSET_HIGH] << 32 == (1 << PAPER.va_sector_bits) - 1
    assert words[SendWord.CONTROL] == 63 | Access.UPDATE.value << 6 | 3 << 12 | 0xFFFE << 16


def test_sends_are_written_word_by_word():
    words = send_words(PAPER, peer=1)
    assert [address for address, _ in send_writes(PAPER, 15, words)] == [
        SEND_BASE + 0xF0 + 4 * word for word in SendWord
    ]
    with pytest.raises(DriverError, match="send index must be"):
        send_writes(PAPER, 16, words)


def test_range_is_invalid_while_it_is_written():
    writes = range_writes(PAPER, 3, range_words(PAPER, base=64, sectors=32))
    control = WINDOW_BASE + 3 * 0x80
    assert writes[0] == (control, 0)
    assert writes[-1][0] == control and writes[-1][1] & 1
    assert {address for address, _ in writes} == {control + 4 * word for word in Word}
    with pytest.raises(DriverError, match="range index must be"):
        range_writes(PAPER, 16, {})


def test_register_writes():
    assert register_write(PAPER, "rank", rank=5) == (find_register(PAPER, "rank").address, 5)
    assert wide_writes(PAPER, "spill_base", 1 << 40 | 6) == [
        (find_register(PAPER, "spill_base_low").address, 6),
        (find_register(PAPER, "spill_base_high").address, 1 << 8),
    ]
    assert link_writes(PAPER, [3, None]) == [(find_register(PAPER, "link_peers_0").address, 0x83)]
    slow = link_writes(preset("paper", link_latency=1024), [None, 5])
    names = {find_register(PAPER, name).address: name for name in ("link_peers_0", "link_silence", "link_retry")}
    assert [(names[at], value) for at, value in slow] == [
        ("link_peers_0", 0x8500),
        ("link_silence", 2048),
        ("link_retry", 4096),
    ]
    with pytest.raises(DriverError, match="link ports of the topology must be a whole number from 0 to 2, got 3"):
        link_writes(PAPER, [0, 1, 2])
    assert arm_writes(PAPER)[0][1] == 1
    assert arm_writes(PAPER, initialised=True)[0][1] == 9
    arbiter, limit = arbiter_writes(PAPER, Policy.COMPUTE_FIRST, Threshold.OCCUPANCY_30, 77, False)
    assert arbiter[1] == 1 | 2 << 4 and limit[1] == 77
    # 13.65 cycles for a sector on the link; an eighth of what 48 packets of 8 bridge is more than the longest lag.
    assert [value for _, value in pace_writes(PAPER)] == [6, 512]
    assert [value for _, value in pace_writes(PAPER, 2)] == [3, 327]
    assert [value for _, value in pace_writes(preset("tiny"))] == [6, 13]
    # The four channels of a lane share it, the two of a slice not where seven ports fill each other's waits.
    assert [[value for _, value in pace_writes(preset(name))] for name in ("quad", "gpu")] == [[6, 128]] * 2
    mesh = preset("paper", channels=2, links=7, dma_packets=512)
    assert [pace_writes(mesh, ports)[1][1] for ports in (1, 2, 4, 7)] == [256, 256, 512, 512]
    with pytest.raises(DriverError, match="ports must be a whole number from 1 to 2, got 3"):
        pace_writes(PAPER, 3)
    assert [window_write(config, 3 << 27)[1] for config in (PAPER, preset("quad"))] == [1 << 31 | 12, 1 << 31 | 3]
    with pytest.raises(DriverError, match=r"rank.rank must be a whole number from 0 to 63, got 64"):
        register_write(PAPER, "rank", rank=64)
    with pytest.raises(DriverError, match="there is no register 'rang'"):
        register_write(PAPER, "rang", rank=1)
    with pytest.raises(DriverError, match="has no field 'x'"):
        register_write(PAPER, "rank", x=1)


@pytest.mark.parametrize(
    "spec",
    [
        shape(gpus=3, shape=(96, 64, 32), tile=(16, 32), wfs=2),
        shape(preset="quad", gpus=2, shape=(64, 64, 32), tile=(32, 64)),
        layer("mega-gpt-2/op/tp8", "t3-paced", channels=2),
    ],
    ids=lambda spec: f"{spec.compute}-{spec.preset}",
)
def test_an_experiment_keeps_to_the_memory_that_its_channels_have(spec):
    """No two regions that a GPU is told of are the same places of its DRAM, and no access that leaves it gets there."""
    job = job_of(spec, work_of(spec))
    config = job.build.config
    window = window_write(config, ARRAY_BASE)
    written = [word & ~0xFFFF_FFFF for word in job.program]
    for rank in range(job.build.nodes):
        place = job.program.index(command(WRITE, rank, *window))
        assert written.count(command(WRITE, rank, window[0], 0)) == 1
        assert place < job.session["phases"]["settle"]
    assert window_write(config, input_base(config.channels) + INPUT_SECTORS - 1) == window


def programmed_ranges(config, program, rank):
    """Sectors of the ranges that a GPU is told of, as the commands of the host say: first, and first behind them."""
    words = {}
    for item in program:
        operation, of, address, value = item >> 60, item >> 50 & 63, item >> 32 & 0xFFFF, item & 0xFFFF_FFFF
        if (operation, of) == (WRITE, rank) and WINDOW_BASE <= address < WINDOW_BASE + config.ranges * 4 * ENTRY_WORDS:
            index, word = divmod((address - WINDOW_BASE) // 4, ENTRY_WORDS)
            words[index, word] = value
    for index in {index for index, word in words if word == Word.CONTROL and words[index, word]}:
        first, last = (
            words[index, low] | words[index, high] << 32
            for low, high in ((Word.BASE_LOW, Word.BASE_HIGH), (Word.LIMIT_LOW, Word.LIMIT_HIGH))
        )
        yield first, last


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_keeps_to_the_memory_that_its_channels_have(name):
    """All that it is told of lies in the memory which alone it may reach, and so does all that its kernels read."""
    spec = collective(name, 2, shape=(80, 40, 40), tile=(16, 32), wfs=4)
    work = work_of(spec)
    assert isinstance(work, ProgramWork)
    job = job_of(spec, work)
    config = job.build.config
    window = window_write(config, ARRAY_BASE)
    for rank in range(job.build.nodes):
        assert job.program.index(command(WRITE, rank, *window)) < job.session["phases"]["settle"]
        ranges = list(programmed_ranges(config, job.program, rank))
        assert len(ranges) > 1
        for first, limit in ranges:
            assert window_write(config, first) == window_write(config, limit - 1) == window
        for plan in work.kernels[rank]:
            for operand in ("a", "b"):
                groups = plan.workgroups
                count = plan.kernel["steps"] * groups[f"{operand}_sectors"] + groups[f"{operand}_last"]
                places, counts = np.broadcast_arrays(groups[f"{operand}_va"], count)
                for place, read in zip(places.tolist(), counts.tolist(), strict=True):
                    assert not read or any(first <= place < limit for first, limit in ranges)


def test_a_program_does_not_run_in_the_memory_beside_its_own():
    spec = collective("ring-all-gather-gemm", 2, shape=(80, 40, 40), tile=(16, 32), wfs=4)
    beside = partial(window_write, va=2 * ARRAY_BASE)
    with patch("sim.experiments.program_job.window_write", lambda config, va: beside(config)):
        result = run_experiment(spec)
    assert {f"rank {rank} had a read refused" for rank in range(2)} <= set(result["errors"])


def test_arrays_that_reach_the_operands_are_refused():
    spec = shape(gpus=2, shape=(1 << 16, 1 << 13, 0), tile=(256, 512))
    with pytest.raises(DriverError, match="overlap"):
        job_of(spec, ArrayWork(np.empty(0, np.uint16), spec.tiling()))
