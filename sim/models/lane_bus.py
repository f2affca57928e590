"""What moves between a node and one of its lanes that is a model of its own, and who has settled when.

In a cycle all models first see the edge of the clock. Then the lanes' `early` outputs, which depend on registers only,
go to the rest of the GPU, what that makes of them goes `down` to the lanes, and what those make of that (`late`) comes
back, where only registers and nothing that goes down looks at it. So two evaluations of each are a cycle, and all
signals are what they are in one model (`tb/simulation/test_lanes_apart.py` finds that in the netlists).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from amaranth import Module
from amaranth.hdl import Shape, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from hw.config import Configuration
from hw.memory_lane import MemoryLane
from sim.models.burst_lanes import RequestLane
from sim.models.lane_surroundings import lane_report
from sim.models.link import rate_shape
from sim.models.recorder import Recorded

WORD = 32
BESIDE = ("number", "dram", "link")
"""Ports of a lane that what stands around it is joined to."""
REQUESTS = ("compute", "responses", "remote_room")
"""Those that lanes of requests are joined to, where these are parts of the same model."""
BESIDE_REQUESTS = ("rank", "base", "room", "requests", "responses")
"""Ports of a lane of requests that are joined there."""
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


class BusMember(NamedTuple):
    """A port whose way leads over the bus: its `field` there, its name without places in arrays, direction, signal."""

    field: str
    plain: str
    flow: wiring.Flow
    port: Value


def lane_members(lane: Any, requests: Sequence[Any] = ()) -> list[BusMember]:
    """Ports of `lane`, and of the lanes of requests that are parts of its model, by channel, between it and the rest of
    the GPU."""
    answer = _members("lane", lane, (*BESIDE, *REQUESTS) if requests else BESIDE)
    for channel, of_channel in enumerate(requests):
        answer += _members(f"requests_{channel}", of_channel, BESIDE_REQUESTS)
    return answer


def _members(prefix: str, interface: Any, without: Sequence[str]) -> list[BusMember]:
    answer = []
    for path, member, port in interface.signature.flatten(interface):
        if path[0] not in without:
            name = "__".join(map(str, (prefix, *path)))
            plain = "__".join(part for part in path if isinstance(part, str))
            answer.append(BusMember(name, plain, member.flow, Value.cast(port)))
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
    """Layouts, in whole words, of the three parts; their fields are ports of a lane, of the lanes of requests that are
    parts of its model, and what else goes with them."""

    down: data.FlexibleLayout
    early: data.FlexibleLayout
    late: data.FlexibleLayout

    @staticmethod
    def of(config: Configuration, request_ports: int = 0) -> "LaneBus":
        """The bus of a lane of `config`; with `request_ports`, where lanes of requests that store by so many link ports
        are parts of it."""
        down: list[tuple[str, Any]] = [("rank", unsigned(6)), ("dump", unsigned(1)), ("stop", unsigned(config.links))]
        down += [(f"rate_{port}", rate_shape(config)) for port in range(config.links)]
        early: list[tuple[str, Any]] = [("report", lane_report(config.links))]
        late: list[tuple[str, Any]] = []
        requests = [
            wiring.Signature(RequestLane.ports(config, request_ports)).create()
            for _ in range(config.lane_channels if request_ports else 0)
        ]
        for member in lane_members(wiring.Signature(MemoryLane.ports(config)).create(), requests):
            part = down if member.flow == In else late if member.plain in LATE else early
            part.append((member.field, unsigned(len(member.port))))
        return LaneBus(*map(_by_words, (down, early, late)))

    def width(self, part: str) -> int:
        """Bits of `down`, `early` or `late`."""
        layout: data.FlexibleLayout = getattr(self, part)
        return layout.size
