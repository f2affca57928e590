"""Handshakes as timing diagrams, drawn from what the blocks do: each is a short run in Amaranth's own simulator,
recorded cycle by cycle and written as WaveDrom, so no diagram can say what the hardware does not."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import wavedrom
from amaranth.hdl import Value
from amaranth.hdl._ast import Const
from amaranth.lib import data, wiring
from amaranth.sim import Simulator

from hw.config import preset
from hw.memory_controller import MemoryController
from hw.messages import Access, ArbiterControl, ColumnCommand, Messages, RowCommand, Source
from hw.primitives import Queue
from hw.range_table import RangeWrite
from hw.registers import RegisterFile
from hw.registers.map import find_register
from hw.tracker import Tracker, TrackerParameters
from sim.host.range_entries import range_words
from sim.host.tiling import Tiling

Show = Callable[[int], str]
CLEARING = 40
"""Cycles after reset in which small tables are cleared."""


@dataclass(frozen=True)
class Row:
    """A line of a diagram: `value` each cycle; one bit wide, or shown as text by `show` while `valid` is high."""

    name: str
    value: Value
    show: Show | None = None
    valid: Value | None = None


@dataclass
class Recording:
    """What a run showed: per row and cycle the bit, or the text of a bus ("" when it is not valid)."""

    rows: Sequence[Row]
    seen: list[list[int | str]] = field(default_factory=list)

    def wavedrom(self) -> dict[str, Any]:
        """The description that WaveDrom draws."""
        lines: list[dict[str, Any]] = [{"name": "clk", "wave": "p" + "." * (len(self.seen) - 1)}]
        for place, row in enumerate(self.rows):
            wave, texts, before = "", [], None
            for now in (cycle[place] for cycle in self.seen):
                if now == before:
                    wave += "."
                elif row.show is None:
                    wave += str(now)
                elif now:
                    wave += "="
                    texts.append(str(now))
                else:
                    wave += "x"
                before = now
            lines.append({"name": row.name, "wave": wave, **({"data": texts} if texts else {})})
        return {"signal": lines, "head": {"tick": 0}}


def record(component: wiring.Component, rows: Sequence[Row], cycles: int, drive: Any, skip: int = 0) -> Recording:
    """Run `component` with the testbench `drive(sim)`, an asynchronous function, and record `cycles` after `skip`."""
    recording = Recording(rows)
    simulator = Simulator(component)
    simulator.add_clock(1e-9)

    async def watch(sim: Any) -> None:
        for cycle in range(skip + cycles):
            # After all that the cycle's inputs change, before the edge that ends it.
            await sim.delay(0.4e-9)
            if cycle >= skip:
                recording.seen.append([_text(sim, row) for row in rows])
            await sim.tick()

    simulator.add_testbench(drive, background=True)
    simulator.add_testbench(watch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        simulator.run()
    return recording


def _text(sim: Any, row: Row) -> int | str:
    value = int(sim.get(Value.cast(row.value)))
    if row.show is None:
        return value
    return row.show(value) if row.valid is None or sim.get(Value.cast(row.valid)) else ""


def constant(layout: data.Layout, values: Mapping[str, Any]) -> Const:
    """A payload of `layout`."""
    return Const(layout.const(dict(values)).as_value().value, layout.size)


def stream_handshake() -> Recording:
    """A queue of two entries whose consumer stops for a while."""
    queue = Queue(8, 2)

    async def drive(sim: Any) -> None:
        number = 0
        for cycle in range(15):
            sim.set(queue.i.valid, cycle not in (0, 9))
            sim.set(queue.i.payload, 0xA0 + number)
            sim.set(queue.o.ready, cycle not in (3, 4, 5))
            _, _, taken = await sim.tick().sample(queue.i.valid & queue.i.ready)
            number += taken

    def hexadecimal(value: int) -> str:
        return f"{value:02X}"

    rows = [
        Row("i.valid", queue.i.valid),
        Row("i.ready", queue.i.ready),
        Row("i.payload", queue.i.payload, hexadecimal, queue.i.valid),
        Row("o.valid", queue.o.valid),
        Row("o.ready", queue.o.ready),
        Row("o.payload", queue.o.payload, hexadecimal, queue.o.valid),
    ]
    return record(queue, rows, 14, drive)


def register_bus() -> Recording:
    """A write of register `epoch` on the AXI4-Lite bus, and its value read back."""
    config = preset("tiny", ranges=4)
    block = RegisterFile(config)
    address = find_register(config, "epoch").address
    cleared = 32 * config.ranges + 2

    async def drive(sim: Any) -> None:
        await sim.tick().repeat(cleared)
        sim.set(block.axi_awaddr, address)
        sim.set(block.axi_wdata, 5)
        sim.set(block.axi_wstrb, 15)
        sim.set(block.axi_bready, 1)
        sim.set(block.axi_rready, 1)
        sim.set(block.axi_awvalid, 1)
        sim.set(block.axi_wvalid, 1)
        await sim.tick().until(block.axi_awready & block.axi_wready)
        sim.set(block.axi_awvalid, 0)
        sim.set(block.axi_wvalid, 0)
        await sim.tick().until(block.axi_bvalid)
        sim.set(block.axi_araddr, address)
        sim.set(block.axi_arvalid, 1)
        await sim.tick().until(block.axi_arready)
        sim.set(block.axi_arvalid, 0)

    def hexadecimal(value: int) -> str:
        return f"{value:x}"

    rows = []
    for channel, payload in (("aw", "awaddr"), ("w", "wdata"), ("b", "bresp"), ("ar", "araddr"), ("r", "rdata")):
        valid, ready = (getattr(block, f"axi_{channel}{name}") for name in ("valid", "ready"))
        rows += [Row(f"{channel}valid", valid), Row(f"{channel}ready", ready)]
        rows.append(Row(payload, getattr(block, f"axi_{payload}"), hexadecimal, valid))
    return record(block, rows, 13, drive, skip=cleared - 1)


def dram_bus() -> Recording:
    """A store to a closed row, and a read of the same sector."""
    config = preset("tiny")
    block = MemoryController(config)
    layout = Messages(config).memory_request
    common = {"va": 0, "mask": (1 << 32) - 1, "source": Source.COMPUTE, "id": 7, "data": 0xDA7A}

    async def drive(sim: Any) -> None:
        sim.set(Value.cast(block.control), constant(ArbiterControl, {}).value)
        sim.set(block.commits.ready, 1)
        sim.set(block.compute_response.ready, 1)
        await sim.tick().repeat(2)
        for access in (Access.STORE, Access.READ):
            sim.set(Value.cast(block.compute.payload), constant(layout, {"access": access, **common}).value)
            sim.set(block.compute.valid, 1)
            await sim.tick().until(block.compute.ready)
        sim.set(block.compute.valid, 0)
        # The DRAM's answer.
        await sim.tick().until(block.column.valid & (block.column.command == ColumnCommand.RD))
        await sim.tick().repeat(config.timing.cl - 1)
        sim.set(block.read_data.data, 0xDA7A)
        sim.set(block.read_data.valid, 1)
        await sim.tick()
        sim.set(block.read_data.valid, 0)

    rows = [
        Row("compute.valid", block.compute.valid),
        Row("compute.ready", block.compute.ready),
        Row("compute.access", block.compute.payload.access.as_value(), lambda v: Access(v).name, block.compute.valid),
        Row("row.command", block.row.command.as_value(), lambda v: RowCommand(v).name, block.row.valid),
        Row("column.command", block.column.command.as_value(), lambda v: ColumnCommand(v).name, block.column.valid),
        Row("write_data.data", block.write_data.data, lambda v: f"{v:X}" if v else ""),
        Row("read_data.data", block.read_data.data, lambda v: f"{v:X}", block.read_data.valid),
        Row("compute_response", block.compute_response.payload.id, lambda v: f"{v}", block.compute_response.valid),
    ]
    return record(block, rows, 46, drive)


def tracker_trigger() -> Recording:
    """Two commits complete a tile of 64 bytes, and its launch event follows."""
    config = TrackerParameters(ranges=4, tracker_sets=4, tracker_ways=1, trigger_blocks=16)
    tracker = Tracker(config)
    tiling = Tiling(rows=1, columns=32, tile_rows=1, tile_columns=32, wfs=1)
    words = range_words(config, base=0, tiling=tiling, tracked=True, launch=True)
    commit = tracker.commits[0]
    layout = Messages(config).commit

    async def drive(sim: Any) -> None:
        for word, value in reversed(words.items()):
            write = constant(RangeWrite, {"valid": 1, "word": word.value, "data": value})
            sim.set(Value.cast(tracker.ranges), write.value)
            await sim.tick()
        sim.set(Value.cast(tracker.ranges), 0)
        sim.set(tracker.epoch, 1)
        for port in (tracker.blocks, tracker.launches, tracker.spill_requests, tracker.faults):
            sim.set(port.ready, 1)
        await sim.tick().repeat(CLEARING - len(words) + 2)
        for sector in (0, 1):
            sim.set(Value.cast(commit.payload), constant(layout, {"epoch": 1, "va": sector, "bytes": 32}).value)
            sim.set(commit.valid, 1)
            await sim.tick().until(commit.ready)
        sim.set(commit.valid, 0)

    rows = [
        Row("commits.valid", commit.valid),
        Row("commits.ready", commit.ready),
        Row("commits.va", commit.payload.va, str, commit.valid),
        Row("commits.bytes", commit.payload.bytes, str, commit.valid),
        Row("launches.valid", tracker.launches.valid),
        Row("launches.ready", tracker.launches.ready),
        Row("launches.wg", tracker.launches.payload.wg, str, tracker.launches.valid),
    ]
    return record(tracker, rows, 14, drive, skip=CLEARING)


@dataclass(frozen=True)
class Diagram:
    """`make` runs the block; `text` says what is seen."""

    title: str
    text: str
    make: Callable[[], Recording]


DIAGRAMS = {
    "stream": Diagram(
        "A stream",
        "Every `stream.Signature` is `payload`, `valid` and `ready`, in Verilog `name__payload` and so on. A payload "
        "moves at each edge of the clock with both `valid` and `ready` high. `valid` does not wait for `ready`, and a "
        "payload stays until it is taken. Here a queue of two entries: its consumer stops for three cycles, it "
        "fills, and its own `ready`, which depends on registers only, goes low.",
        stream_handshake,
    ),
    "registers": Diagram(
        "The register bus",
        "AXI4-Lite (ARM IHI 0022): register `epoch` is written, then read. Address and data of a "
        "write are taken together.",
        register_bus,
    ),
    "dram": Diagram(
        "The bus of a DRAM channel",
        "A store to a closed row, then a read of the same sector: ACT on the row bus; after tRCD the column command "
        "WR, whose data follows WL cycles later; the read waits for the turn of the data bus. Times are those of "
        "`hw/dram_timing.py`; nothing was in the queues before.",
        dram_bus,
    ),
    "tracker": Diagram(
        "Commits and a trigger",
        "A WF tile of 64 bytes, whose range raises launch events: the second commit completes it, and the event is "
        "offered seven cycles later. A DMA block comes out of `blocks` in the same way.",
        tracker_trigger,
    ),
}


def page(svgs: str = "/figures") -> str:
    """The page, with the diagrams from folder `svgs` of the site."""
    lines = ["# Handshakes", "", "Each diagram is a recorded run of the block itself (`tb/site/handshakes.py`).", ""]
    for name, diagram in DIAGRAMS.items():
        picture = f"![{diagram.title}]({svgs}/{name}.svg)"
        lines += [f"## {diagram.title}", "", diagram.text, "", "```{container} wide", picture, "```", ""]
    return "\n".join(lines)


def svg(recording: Recording) -> str:
    """The diagram as SVG."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(wavedrom.render(json.dumps(recording.wavedrom())).tostring())
