"""The GEMM engine stores every sector of every tile once, under the right wg and wf, in the staggered order."""

import json
import os
import random

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

from hw.config import PRESETS
from hw.messages import Access, Messages
from sim.models import FOLDER as MODELS
from sim.models.gemm import GemmEngine, GemmWord
from tb.drivers.stream import StreamSink, stalls
from tb.runner import simulate

BASE = 1 << 20
SOURCE_SECTORS = 1 << 12
REQUEST = Messages(PRESETS["paper"]).compute_request


def golden(case):
    """(chunk, row, sector in row) -> (wg, wf, mask) by walking every sector of every chunk."""
    answer = {}
    for chunk in range(case["chunks"]):
        for row in range(case["rows"]):
            for sector in range(case["pitch"]):
                tile_column = min(sector * 32 // case["tile_bytes"], case["across"] - 1)
                tile_row = row // case["tile_rows"]
                left = case["row_bytes"] - 32 * sector
                wg = chunk * case["stride"] + tile_row * case["across"] + tile_column
                wf = row % case["tile_rows"] // (case["tile_rows"] // case["wfs"])
                answer[chunk, row, sector] = wg, wf, (1 << min(left, 32)) - 1
    return answer


def words(case):
    """The engine's parameters for a case."""
    wf_rows = case["tile_rows"] // case["wfs"]
    right = case["row_bytes"] - (case["across"] - 1) * case["tile_bytes"]
    down = -(-case["rows"] // case["tile_rows"])
    return {
        "ARRAY_BASE": BASE,
        "CHUNK_SECTORS": case["rows"] * case["pitch"],
        "FIRST_CHUNK": case["first"],
        "CHUNK_STEP": case["step"],
        "CHUNKS": case["chunks"],
        "WGS_PER_CHUNK": down * case["across"],
        "WG_STRIDE": case["stride"],
        "TILE_COLUMNS": case["across"],
        "BODY_SECTORS": case["tile_bytes"] // 32,
        "RIGHT_SECTORS": -(-right // 32),
        "BODY_MASK": 0xFFFFFFFF,
        "RIGHT_MASK": (1 << (right % 32 or 32)) - 1,
        "PITCH": case["pitch"],
        "TILE_ROW_STRIDE": case["tile_rows"] * case["pitch"],
        "WF_STRIDE": wf_rows * case["pitch"],
        "WFS": case["wfs"],
        "WF_ROWS": wf_rows,
        "LAST_TILE_ROWS": case["rows"] - (down - 1) * case["tile_rows"],
        "TILE_ROWS": down,
        "SLOTS": case["slots"],
        "COMPUTE_CYCLES": 7,
        "STAGE_READS": 0,
        "STALL": case["stall"],
        "FILL": 0x12345678,
    }


async def start(dut, case):
    cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
    for name in ("start", "fill", "write", "rank"):
        getattr(dut, name).value = 0
    dut.rst.value = 1
    sinks = [StreamSink(dut, "requests__0", dut.clk, stalls(case["stall"] / 4))]
    dut.responses__0__valid.value = 0
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    for name, value in words(case).items():
        dut.write.value = 1 | GemmWord[name].value << 1 | value << 6
        await RisingEdge(dut.clk)
    dut.write.value = 0
    await RisingEdge(dut.clk)
    return sinks[0]


async def finish(dut):
    while True:
        await Timer(50, unit="ns")
        await RisingEdge(dut.clk)
        if not int(dut.busy.value):
            return


@cocotb.test()
async def stores(dut):
    case = json.loads(os.environ["T3_CASE"])
    sink = await start(dut, case)
    dut.start.value = 1
    await RisingEdge(dut.clk)
    dut.start.value = 0
    await RisingEdge(dut.clk)
    await finish(dut)
    expected = golden(case)
    seen = {}
    order: list[int] = []
    for bits in sink.received:
        request = REQUEST.from_bits(bits)
        offset = request.va - BASE
        chunk, inside = divmod(offset, case["rows"] * case["pitch"])
        row, sector = divmod(inside, case["pitch"])
        assert request.access is Access.STORE
        assert (chunk, row, sector) not in seen
        seen[chunk, row, sector] = request.wg, request.wf, request.mask
        assert request.data == offset * 0x1_0000_0001
        if not order or order[-1] != chunk:
            order.append(chunk)
    assert seen == expected
    assert order == [(case["first"] + n * case["step"]) % case["chunks"] for n in range(case["chunks"])]


@cocotb.test()
async def fills(dut):
    case = json.loads(os.environ["T3_CASE"])
    sink = await start(dut, case)
    dut.fill.value = 1
    await RisingEdge(dut.clk)
    dut.fill.value = 0
    await RisingEdge(dut.clk)
    await finish(dut)
    seen = sorted(REQUEST.from_bits(bits).va - BASE for bits in sink.received)
    length = case["rows"] * case["pitch"]
    chunks = [chunk for chunk in range(case["chunks"]) if chunk != case["first"]]
    assert seen == [chunk * length + n for chunk in chunks for n in range(length)]
    assert all(REQUEST.from_bits(bits).data == int("12345678" * 8, 16) for bits in sink.received)


def random_case(generator):
    wfs = generator.choice([1, 2, 3, 5, 8])
    across = generator.choice([1, 2, 3])
    tile_bytes = 32 * generator.randint(1, 4)
    row_bytes = (across - 1) * tile_bytes + 2 * generator.randint(1, tile_bytes // 2)
    chunks = generator.choice([2, 3, 4])
    return {
        "wfs": wfs,
        "across": across,
        "tile_bytes": tile_bytes,
        "row_bytes": row_bytes,
        "pitch": -(-row_bytes // 32),
        "tile_rows": wfs * generator.randint(1, 3),
        "rows": generator.randint(1, 20),
        "chunks": chunks,
        "first": generator.randrange(chunks),
        "step": generator.choice([1, chunks - 1]),
        "stride": 64,
        "slots": generator.choice([1, 2, 5, 100]),
        "stall": generator.choice([0, 60]),
    }


@pytest.mark.parametrize("testcase", ["stores"] * 6 + ["fills"])
def test_gemm(testcase, tmp_path, request):
    case = random_case(random.Random(request.node.name))
    lines = [f"{n * 0x1_0000_0001:064x}" for n in range(SOURCE_SECTORS)]
    (tmp_path / "source0.hex").write_text("\n".join(lines))
    simulate(
        GemmEngine(PRESETS["paper"], SOURCE_SECTORS),
        "gemm_engine",
        __name__,
        testcase,
        environment={"T3_CASE": json.dumps(case)},
        sources=[MODELS / "source_array.sv"],
        plusargs=[f"+source={tmp_path}/source"],
    )
