"""Monitor of the doorbell: what is rung, the tiles of a walk, and how walks end. Samples the groups of the plan."""

from dataclasses import dataclass, field
from typing import Any

from hw.config import Configuration
from hw.messages import Fault, Messages
from hw.range_table import Blocks, Control, Grouping, Ragged, RangeWrite, Word, Workgroups
from hw.tracker.tile_geometry import MAX_WFS
from tb.drivers.payload import unpack
from tb.functional_coverage import plan
from tb.functional_coverage.collection import cycles
from tb.functional_coverage.monitors import Handshake, how, port
from tb.functional_coverage.plan import TILES, band


@dataclass
class Ring:
    """A ring and the words of its range as they came; `walking`: refused because another one was walked."""

    first: int
    count: int
    words: dict[Word, int] = field(default_factory=dict)
    walking: bool = False

    @property
    def kind(self) -> str:
        """Bin of the axis `range`."""
        control = unpack(Control, self.words[Word.CONTROL])
        return "not valid" if not control["valid"] else "tracked" if control["tracked"] else "not tracked"

    @property
    def asked(self) -> str:
        """Bin of the axis `workgroups`."""
        of_range = unpack(Workgroups, self.words[Word.WORKGROUPS])
        start, total = self.first - of_range["base"], of_range["count"]
        if start < 0:
            return "before the range"
        if start + self.count > total:
            return "past the range"
        if not self.count:
            return "none"
        if self.count == total:
            return "all"
        return "first" if start == 0 else "last" if start + self.count == total else "inner"

    def tiles(self, wg: int) -> int:
        """WF tiles of workgroup `wg`."""
        bottom = wg - unpack(Workgroups, self.words[Word.WORKGROUPS])["base"] >= self._bottom
        wfs = unpack(Blocks, self.words[Word.BLOCKS])["bottom_wfs"] if bottom else 0
        return wfs or unpack(Grouping, self.words[Word.GROUPING])["wfs"]

    def edge(self, wg: int, wf: int) -> str:
        """Bin of the axis `edge`: which of the thresholds is this tile's."""
        of_range = unpack(Workgroups, self.words[Word.WORKGROUPS])
        number = wg - of_range["base"]
        right = (number + 1) % (of_range["count"] - self._bottom) == 0
        ragged = number >= self._bottom and wf == unpack(Blocks, self.words[Word.BLOCKS])["bottom_full"]
        return ("body", "right", "bottom", "corner")[right + 2 * ragged]

    @property
    def _bottom(self) -> int:
        return unpack(Ragged, self.words[Word.RAGGED])["bottom"]

    @property
    def is_tiled(self) -> bool:
        """Whether its workgroups have as many tiles as a workgroup can: software may write any words."""
        return all(1 <= self.tiles(wg) <= MAX_WFS for wg in range(self.first, self.first + self.count))

    @property
    def all_tiles(self) -> int:
        """WF tiles of all its workgroups."""
        return sum(self.tiles(wg) for wg in range(self.first, self.first + self.count))


async def watch_doorbell(dut: Any, config: Configuration) -> None:
    """Every ring, commit and end of a walk. A ring's answer is known a cycle after its last word."""
    commits, faults, messages = Handshake(dut, "commits"), Handshake(dut, "faults"), Messages(config)
    rung: Ring | None = None
    walked: Ring | None = None
    complete = on_tile = False
    taken = 0
    async for _ in cycles(dut):
        record = faults.taken()
        if rung and record is not None and unpack(messages.fault_record, record)["fault"] == Fault.BUSY.value:
            rung.walking = True
        if rung and complete:
            armed = port(dut, "armed")
            state = "walking" if rung.walking else "ready" if armed else "not armed"
            kind, asked = rung.kind, rung.asked
            plan.DOORBELL.sample(state, kind, asked)
            served = (
                state == "ready" and kind == "tracked" and asked not in ("none", "before the range", "past the range")
            )
            walked, taken = (rung, 0) if served and rung.is_tiled else (walked, taken)
            rung, complete = None, False
        payload = commits.taken()
        if walked and payload is not None:
            commit = unpack(messages.commit, payload)
            taken += 1
            tiles = band(TILES, walked.tiles(commit["wg"]))
            plan.DOORBELL_TILE.sample(walked.edge(commit["wg"], commit["wf"]), tiles, how(commits))
        if walked and not port(dut, "busy"):
            ended = "disarmed on a tile" if on_tile else "disarmed between workgroups"
            all_taken = taken == walked.all_tiles
            plan.DOORBELL_END.sample("completed" if all_taken else ended, "1" if walked.count == 1 else "several")
            walked = None
        on_tile = payload is not None
        write = unpack(RangeWrite, port(dut, "entry"))
        if write["valid"]:
            word = Word(write["word"])
            if word is Word.CONTROL:
                rung = Ring(port(dut, "first"), port(dut, "count"))
            if rung:
                rung.words[word] = write["data"]
                complete = word is Word.WF_TOTAL
