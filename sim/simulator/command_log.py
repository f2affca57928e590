"""What `command_log.sv` wrote down of a GPU's channels: the column commands that changed its memory, in their order."""

from pathlib import Path

import numpy as np

from hw.config import INTERLEAVE_SECTORS
from hw.messages import AluOperation, ColumnCommand
from sim.golden.replay import LOG, LOGGED

_OPERATION = {
    (ColumnCommand.UPDATE.value, AluOperation[name.upper()].value): number
    for number, name in enumerate(LOGGED)
    if name != "store"
}


def read_log(folder: Path, rank: int, channels: int) -> np.ndarray:
    """The commands of `rank`, an array of :data:`sim.golden.replay.LOG`; sectors from the first array on.

    The commands of one sector are in their order; it lies in one channel.
    """
    parts = [_channel(folder / f"log{rank * channels + channel}.hex", channel, channels) for channel in range(channels)]
    log = np.concatenate(parts)
    # An update acts as a store when it is the first command to its sector, in the one epoch of a run.
    _, firsts = np.unique(log["sector"], return_index=True)
    first = np.zeros(len(log), bool)
    first[firsts] = True
    log["first"] &= first
    return log


def _channel(path: Path, channel: int, channels: int) -> np.ndarray:
    lines = path.read_text().split()
    columns = [lines[place::6] for place in range(6)]
    sector, command, alu, first, mask = ([int(word, 16) for word in column] for column in columns[:5])
    log = np.zeros(len(sector), LOG)
    local = np.array(sector, np.int64)
    block = local // INTERLEAVE_SECTORS * channels + channel
    log["sector"] = block * INTERLEAVE_SECTORS + local % INTERLEAVE_SECTORS
    log["operation"] = [_OPERATION.get(pair, 0) for pair in zip(command, alu, strict=True)]
    log["first"] = np.array(first, bool) & (log["operation"] != 0)
    log["mask"] = mask
    data = np.frombuffer(bytes.fromhex("".join(columns[5])), np.uint8).reshape(-1, 32)
    log["operand"] = data[:, ::-1]
    return log
