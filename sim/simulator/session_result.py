"""What a session (`sim/models/gpus.cpp`) left of a run: the status of every GPU and its node's registers."""

import json
from pathlib import Path
from typing import Any

from amaranth.lib import data

from hw.config import Configuration
from sim.host.program import counter_registers
from sim.models.gpu import gpu_status


def read_result(folder: Path, config: Configuration) -> dict[str, Any]:
    """What the simulator left in `folder`: `ranks` by name (:func:`sim.models.gpu.gpu_status`), each
    with the `registers` that the simulation's host read; `alone`, cycles of each GEMM by itself; `finished`; `seconds`
    by stage, and `processor_seconds`: what all stages took of the processor; `switch_busy`: by lane of a switch, busy
    cycles of each link from it; `switch_stray`: a packet came to it that was for nobody."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    layout = gpu_status(config.links, config.channels)
    result["alone"] = [plain(layout.from_bits(int(bits, 16)))["gemm_cycles"] for bits in result["alone"]]
    result["ranks"] = ranks = [plain(layout.from_bits(int(bits, 16))) for bits in result["ranks"]]
    names = {address: name for name, address in counter_registers(config).items()}
    for status in ranks:
        status["registers"] = {}
    for line in (folder / "answers.txt").read_text().splitlines():
        rank, address, value = map(int, line.split())
        ranks[rank]["registers"][names[address]] = value
    return result


def plain(value: Any) -> Any:
    """A constant as numbers, lists and dictionaries, after its layout."""
    if not isinstance(value, data.Const):
        return int(value)
    layout = value.shape()
    if isinstance(layout, data.ArrayLayout):
        return [plain(value[index]) for index in range(layout.length)]
    return {name: plain(value[name]) for name, _ in layout}
