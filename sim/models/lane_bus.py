"""What moves between a node and one of its lanes that is a model of its own, and who has settled when.

In a cycle all models first see the edge of the clock. Then the lanes' `early` outputs, which depend on registers only,
go to the rest of the GPU, what that makes of them goes `down` to the lanes, and what those make of that (`late`) comes
back, where only registers and nothing that goes down looks at it. So two evaluations of each are a cycle, and all
signals are what they are in one model (`tb/simulation/test_lanes_apart.py` finds that in the netlists).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from amaranth import Module
from amaranth.hdl import Shape, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from hw.config import Configuration
from hw.memory_lane import MemoryLane
from sim.models.lane_surroundings import lane_report
from sim.models.link import rate_shape
from sim.models.recorder import Recorded

WORD = 32
BESIDE = ("number", "dram", "link")
"""Ports of a lane that what stands around it is joined to."""
LATE = ("blocks__ready", "clearing__ready", "events", "dma_events", "link_events", "lane_state")
"""Outputs of a lane that depend on its inputs in the same cycle."""


class LaneSocket(wiring.Component):
    """The ports of a lane, with nothing behind them: in a node they lead to a lane outside."""

    def __init__(self, config: Configuration):
        super().__init__(MemoryLane.ports(config))

    def elaborate(self, platform: object) -> Module:
        return Module()


class OpenNode(Recorded):
    """A node with a socket (`sockets`) in the place of each lane."""

    def __init__(self, config: Configuration):
        super().__init__(config)
        self.sockets = [LaneSocket(config) for _ in range(config.lanes)]
        self._free = iter(self.sockets)

    def _lane(self) -> MemoryLane:
        return cast(MemoryLane, next(self._free))


def lane_members(lane: Any) -> list[tuple[str, str, wiring.Flow, Value]]:
    """Ports of `lane` between it and the node: name with places in arrays, name without, direction, signal."""
    answer = []
    for path, member, port in lane.signature.flatten(lane):
        if path[0] not in BESIDE:
            name = "__".join(map(str, path))
            plain = "__".join(part for part in path if isinstance(part, str))
            answer.append((name, plain, member.flow, Value.cast(port)))
    return answer


def _by_words(fields: Iterable[tuple[str, Any]]) -> data.FlexibleLayout:
    """`fields` one behind the other; one that would cross a word begins with it, so that it is copied by words."""
    placed, used = {}, 0
    for name, shape in fields:
        width = Shape.cast(shape).width
        if used % WORD + width > WORD:
            used = -(-used // WORD) * WORD
        placed[name] = data.Field(shape, used)
        used += width
    return data.FlexibleLayout(-(-used // WORD) * WORD, placed)


@dataclass(frozen=True)
class LaneBus:
    """Layouts, in whole words, of the three parts; their fields are a lane's ports, and what else goes with them."""

    down: data.FlexibleLayout
    early: data.FlexibleLayout
    late: data.FlexibleLayout

    @staticmethod
    def of(config: Configuration) -> "LaneBus":
        """The bus of a lane of `config`."""
        down: list[tuple[str, Any]] = [("rank", unsigned(6)), ("dump", unsigned(1)), ("stop", unsigned(config.links))]
        down += [(f"rate_{port}", rate_shape(config)) for port in range(config.links)]
        early: list[tuple[str, Any]] = [("report", lane_report(config.links))]
        late: list[tuple[str, Any]] = []
        for name, plain, flow, port in lane_members(wiring.Signature(MemoryLane.ports(config)).create()):
            part = down if flow == In else late if plain in LATE else early
            part.append((f"lane_{name}", unsigned(len(port))))
        return LaneBus(*map(_by_words, (down, early, late)))

    def width(self, part: str) -> int:
        """Bits of `down`, `early` or `late`."""
        layout: data.FlexibleLayout = getattr(self, part)
        return layout.size
