"""Monitors: each watches the ports of one block, cycle by cycle, and samples the groups of the plan."""

from typing import Any

from hw.config import Configuration
from hw.dma.events import DmaEvents
from hw.link.events import LinkEvents
from hw.link.parameters import LinkParameters
from hw.link.wire import packet_layout
from hw.messages import (
    Access,
    ArbiterControl,
    ColumnCommand,
    Mapping,
    Messages,
    Policy,
    Threshold,
    TrafficClass,
)
from hw.range_table import Control, Grouping, RangeWrite, Word
from hw.registers.fields import Kind
from hw.registers.map import SEND_BASE, WINDOW_BASE, register_map
from hw.send_table import SendWord
from hw.tracker.events import TrackerEvents
from hw.tracker.trigger_table import completion
from tb.drivers.payload import unpack
from tb.functional_coverage import plan
from tb.functional_coverage.collection import cycles
from tb.functional_coverage.plan import BANDS, BLOCK_SIZES, LENGTHS, band

FULL_MASK = 0xFFFFFFFF
OUTCOMES = {
    "hit": "hits",
    "allocation": "allocations",
    "eviction": "evictions",
    "fetch": "fetches",
    "trigger": "triggers",
    "stall": "stalls",
}
"""Bins of the Tracker's outcomes by the field of its events."""


def port(dut: Any, name: str) -> int:
    """Value of a port."""
    return int(getattr(dut, name).value)


class Handshake:
    """A stream's transfers: the payload taken in a cycle, and whether it had to wait."""

    def __init__(self, dut: Any, name: str):
        self.dut, self.name = dut, name
        self.waited = False

    def taken(self) -> int | None:
        """The payload if it is taken in this cycle. To be called once a cycle."""
        if not port(self.dut, f"{self.name}__valid"):
            return None
        if not port(self.dut, f"{self.name}__ready"):
            self.waiting = True
            return None
        self.waited, self.waiting = self.waiting, False
        return port(self.dut, f"{self.name}__payload")

    waiting = False


class RangeWords:
    """The range table as it was programmed over a `ranges` port."""

    def __init__(self, dut: Any):
        self.dut = dut
        self.words: dict[tuple[int, Word], int] = {}

    def follow(self) -> None:
        """Note the write of this cycle. To be called once a cycle."""
        bits = port(self.dut, "ranges")
        if bits & 1:
            write = unpack(RangeWrite, bits)
            self.words[write["index"], Word(write["word"])] = write["data"]

    def word(self, index: int, word: Word) -> int:
        """A word of entry `index`, 0 when it was never written."""
        return self.words.get((index, word), 0)


def how(stream: Handshake) -> str:
    """Bin of the axis `acceptance`."""
    return "after waiting" if stream.waited else "at once"


async def watch_address_map(dut: Any, config: Configuration) -> None:
    """Port `requests` of the address map."""
    requests, table, layout = Handshake(dut, "requests"), RangeWords(dut), Messages(config).compute_request
    # Nobody reads the bits above it.
    widest = (1 << config.va_sector_bits) - 1
    async for _ in cycles(dut):
        table.follow()
        payload = requests.taken()
        if payload is None:
            continue
        request = unpack(layout, payload)
        for index in range(config.ranges):
            control = unpack(Control, table.word(index, Word.CONTROL))
            base = (table.word(index, Word.BASE_LOW) | table.word(index, Word.BASE_HIGH) << 32) & widest
            limit = (table.word(index, Word.LIMIT_LOW) | table.word(index, Word.LIMIT_HIGH) << 32) & widest
            if not control["valid"] or not base - 1 <= request["va"] <= limit:
                continue
            places = {base - 1: "before the first", base: "first", limit - 1: "last", limit: "after the last"}
            place = places.get(request["va"], "inside")
            plan.ADDRESS_MAP.sample(Mapping(control["mapping"]).name, Access(request["access"]).name, place)


async def watch_controller(dut: Any, config: Configuration) -> None:
    """The request ports of the memory controller."""
    layout = Messages(config).memory_request
    streams = {name: Handshake(dut, name) for name in ("compute", "communication", "spill")}
    async for _ in cycles(dut):
        for name, stream in streams.items():
            payload = stream.taken()
            if payload is None:
                continue
            request = unpack(layout, payload)
            access = Access(request["access"]).name
            plan.CONTROLLER.sample(name, access, how(stream))
            if name != "spill" and request["tracked"] and access != "READ":
                made_by_dma = TrafficClass(request["traffic_class"]) is TrafficClass.RS
                origin = "local" if name == "compute" else "DMA" if made_by_dma else "remote"
                plan.COMMIT.sample(origin, access, "whole sector" if request["mask"] == FULL_MASK else "part")


async def watch_arbiter(dut: Any) -> None:
    """Every decision of the arbiter."""
    async for _ in cycles(dut):
        if port(dut, "take_communication"):
            served = "communication, starved" if port(dut, "forced") else "communication"
        elif port(dut, "take_compute"):
            served = "compute"
        else:
            continue
        policy = Policy(unpack(ArbiterControl, port(dut, "control"))["policy"]).name
        limit = Threshold(port(dut, "threshold")).name
        kernel = "active" if port(dut, "kernel_active") else "ended"
        plan.ARBITER.sample(policy, limit, band(BANDS, port(dut, "occupancy")), served, kernel)


async def watch_bank_group(dut: Any, config: Configuration) -> None:
    """Column commands of one near-bank unit: a command and the one before."""
    layout = Messages(config).column_command
    before: dict[str, int] | None = None
    async for _ in cycles(dut):
        now = unpack(layout, port(dut, "column"))
        if not now["valid"]:
            continue
        now["row"] = port(dut, "row")
        if before is not None:
            same = all(now[name] == before[name] for name in ("bank", "row", "column"))
            names = [ColumnCommand(item["command"]).name for item in (before, now)]
            plan.BANK_GROUP.sample(*names, "same" if same else "other")
        before = now


async def watch_tracker(dut: Any, config: Configuration) -> None:
    """Commits taken by the Tracker, and its events."""
    layout = Messages(config).commit
    commits = [Handshake(dut, f"commits__{channel}") for channel in range(config.channels)]
    table, epochs = RangeWords(dut), set()
    async for _ in cycles(dut):
        table.follow()
        epoch = port(dut, "epoch")
        epochs.add(epoch)
        controls = [unpack(Control, word) for (_, name), word in table.words.items() if name is Word.CONTROL]
        acts = {name for control in controls for name in _actions(control)}
        events = port(dut, "events")
        for outcome, name in OUTCOMES.items() if events and acts else ():
            if unpack(TrackerEvents, events)[name]:
                kind = "both" if len(acts) == 2 else "DMA only" if "dma" in acts else "event only"
                plan.TRACKER.sample(outcome, kind, "first" if len(epochs) == 1 else "later")
        for stream in commits:
            payload = stream.taken()
            if payload is None:
                continue
            commit = unpack(layout, payload)
            control = unpack(Control, table.word(commit["range"], Word.CONTROL))
            launch = "launch" if control["launch"] else "no launch"
            current = "current" if commit["epoch"] == epoch else "other"
            plan.TRACKER_COMMIT.sample(Mapping(control["mapping"]).name, launch, current)


def _actions(control: dict[str, int]) -> set[str]:
    return {
        name for name, does in (("dma", control["mapping"] == Mapping.DMA.value), ("launch", control["launch"])) if does
    }


async def watch_trigger_table(dut: Any, config: Configuration) -> None:
    """Completions entered into the trigger table."""
    layout = completion(config)
    done: dict[int, int] = {}
    async for _ in cycles(dut):
        if port(dut, "clear"):
            done.clear()
        if not port(dut, "complete"):
            continue
        place = unpack(layout["place"].shape, unpack(layout, port(dut, "completion"))["place"])
        before = done.get(place["index"], 0)
        after = done[place["index"]] = before | 1 << place["position"]
        state = (
            "doubled"
            if after == before
            else "completes its block"
            if after == place["needed"]
            else "further"
            if before
            else "first of its block"
        )
        action = ("none", "DMA", "launch", "both")[place["dma"] + 2 * place["launch"]]
        plan.TRIGGER.sample(band(LENGTHS, place["needed"].bit_count()), action, state)


async def watch_spill(dut: Any, config: Configuration, name: str = "requests") -> None:
    """The requests of the Tracker to its memory-backed table."""
    requests, layout = Handshake(dut, name), Messages(config).spill_request
    async for _ in cycles(dut):
        payload = requests.taken()
        if payload is not None:
            kind = "write" if unpack(layout, payload)["write"] else "fetch"
            plan.SPILL.sample(kind, how(requests))


async def watch_dma(dut: Any, config: Configuration) -> None:
    """Blocks of the DMA engine; a block counts with what happened until the next one."""
    blocks, table, layout = Handshake(dut, "blocks"), RangeWords(dut), Messages(config).ready_block
    current: tuple[str, str] | None = None
    waited = False
    async for _ in cycles(dut):
        table.follow()
        waited |= bool(unpack(DmaEvents, port(dut, "events"))["waiting"])
        payload = blocks.taken()
        if payload is None:
            continue
        if current:
            plan.DMA.sample(*current, "waited for" if waited else "always free")
        block = unpack(layout, payload)
        size = unpack(Grouping, table.word(block["range"], Word.GROUPING))["block_wfs"]
        ragged = ("whole", "bottom", "right", "corner")[block["bottom"] + 2 * block["right"]]
        # 0 acts as 1.
        current, waited = (band(BLOCK_SIZES, max(size, 1)), ragged), False


async def watch_packetizer(dut: Any, config: Configuration) -> None:
    """Packets that stores become."""
    layout = packet_layout(config)
    async for _ in cycles(dut):
        if not port(dut, "slots__close"):
            continue
        packet = unpack(layout, port(dut, "slots__packet"))
        last = "whole sector" if packet["mask"] == FULL_MASK else "part"
        sends = "one" if packet["count"] <= 1 else "several"
        plan.PACKETIZER.sample(band(LENGTHS, packet["length"] + 1), last, sends)


async def watch_lane_pair(dut: Any, parameters: LinkParameters) -> None:
    """Two joined lanes `a` and `b`: state of either direction, packets given to be sent, what went wrong."""
    layout = packet_layout(parameters)
    async for _ in cycles(dut):
        for side, direction in (("a", "a to b"), ("b", "b to a")):
            events = port(dut, f"{side}_events")
            seen = {
                name
                for place in range(parameters.links)
                for name, value in unpack(LinkEvents, events >> place * LinkEvents.size).items()
                if value
            }
            states = {"no grant": "no_grant", "no credit": "no_credit", "busy": "sent_flits"}
            plan.LINK.sample(direction, next((name for name, flag in states.items() if flag in seen), "idle"))
            for trouble in seen & set(plan.TROUBLE):
                plan.LINK_TROUBLE.sample(direction, trouble)
            closes = port(dut, f"{side}_close")
            for number, source in enumerate(("dma", "store")):
                if closes >> number & 1:
                    packet = unpack(layout, port(dut, f"{side}_packets") >> number * layout.size)
                    sends = "one" if packet["count"] <= 1 else "several"
                    plan.LINK_PACKET.sample(direction, source, band(LENGTHS, packet["length"] + 1), sends)


async def watch_registers(dut: Any, config: Configuration) -> None:
    """Accesses on the AXI4-Lite port of the register file, with their answers."""
    kinds = {item.address: {field.kind for field in item.fields} for item in register_map(config)}
    addresses: list[int] = []
    strobes: list[int] = []
    reads: list[int] = []

    def target(address: int) -> str:
        found = kinds.get(address & ~3, set())
        if WINDOW_BASE <= address < WINDOW_BASE + 0x80 * config.ranges and address % 0x80 < 4 * len(Word):
            return "range window"
        if SEND_BASE <= address < SEND_BASE + 0x10 * config.sends and address % 0x10 < 4 * len(SendWord):
            return "send window"
        if Kind.READ_WRITE in found:
            return "read-write"
        if found & {Kind.SELF_CLEARING, Kind.RW1C}:
            return "trigger"
        return "read-only" if found else "nothing"

    def moved(channel: str) -> bool:
        return bool(port(dut, f"axi_{channel}valid") and port(dut, f"axi_{channel}ready"))

    async for _ in cycles(dut):
        if moved("b"):
            kind = "write" if strobes.pop(0) == 0xF else "partial write"
            answer = "SLVERR" if port(dut, "axi_bresp") else "OKAY"
            plan.REGISTERS.sample(kind, target(addresses.pop(0)), answer)
        if moved("r"):
            answer = "SLVERR" if port(dut, "axi_rresp") else "OKAY"
            plan.REGISTERS.sample("read", target(reads.pop(0)), answer)
        for channel, waiting, name in (("aw", addresses, "awaddr"), ("w", strobes, "wstrb"), ("ar", reads, "araddr")):
            if moved(channel):
                waiting.append(port(dut, f"axi_{name}"))
