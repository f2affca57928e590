"""Two link units joined by link models, with sources of packets and sinks of the writes that arrive."""

import random
from collections import Counter
from itertools import pairwise

import cocotb
from amaranth import Cat, Const, Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge
from hw.link.link_unit import LinkUnit

from hw.config import Configuration
from hw.link.events import LinkEvents
from hw.messages import Access, Fault, Messages
from hw.range_table import Control, RangeWrite, Word
from sim.models.link import LinkModel
from tb.drivers.payload import pack, unpack
from tb.drivers.stream import StreamSink, StreamSource, stalls
from tb.functional_coverage.collection import observe
from tb.functional_coverage.monitors import watch_link_pair
from tb.golden.packets import header_crc

RANGES = 4
SIDES = {"a": "b", "b": "a"}
"""Either side with the other one."""


def pair_events(config: Configuration) -> data.ArrayLayout:
    """The events of every link port, those of `a` first."""
    return data.ArrayLayout(LinkEvents, 2 * config.links)


class LinkPair(wiring.Component):
    """Link units `a` and `b`, port n of one joined to port n of the other; while nothing arrives, `header` and `last`
    are the wrong way round. `flip` is xored onto the headers that arrive, `flipped_header` tells on which side. `sent`:
    the flits that leave port 0 of `a`. `events`: see :func:`pair_events`."""

    def __init__(self, config: Configuration, unit: type[LinkUnit] = LinkUnit):
        self._config = config
        self._unit = unit
        messages = Messages(config)
        flits = stream.Signature(messages.link_flit)
        members = {
            "ranges": In(RangeWrite),
            "stall": In(1),
            "flip": In(256),
            "flipped_header": Out(2),
            "sent_valid": Out(1),
            "sent": Out(messages.link_flit),
            "events": Out(pair_events(config)),
        }
        for side in SIDES:
            members |= {
                f"{side}_rank": In(6),
                f"{side}_route": In(64),
                f"{side}_epoch": In(messages.epoch),
                f"{side}_armed": In(1),
                f"{side}_arm": In(1),
                f"{side}_dma": In(flits),
                f"{side}_store": In(flits),
                f"{side}_requests": Out(stream.Signature(messages.memory_request)).array(config.channels),
                f"{side}_faults": Out(stream.Signature(messages.fault_record)),
                f"{side}_idle": Out(1),
                f"{side}_no_grant": Out(1),
                f"{side}_no_credit": Out(1),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        units = {side: self._unit(config) for side in SIDES}
        m.d.comb += self.events.eq(Cat(event for unit in units.values() for event in unit.events))
        for side, unit in units.items():
            m.submodules[side] = unit
            idle, no_grant, no_credit = 1, 0, 0
            for event in unit.events:
                idle, no_grant, no_credit = idle & event.idle, no_grant | event.no_grant, no_credit | event.no_credit
            m.d.comb += [
                unit.ranges.eq(self.ranges),
                unit.rank.eq(getattr(self, f"{side}_rank")),
                unit.route.eq(getattr(self, f"{side}_route")),
                unit.epoch.eq(getattr(self, f"{side}_epoch")),
                unit.armed.eq(getattr(self, f"{side}_armed")),
                unit.arm.eq(getattr(self, f"{side}_arm")),
                getattr(self, f"{side}_idle").eq(idle),
                getattr(self, f"{side}_no_grant").eq(no_grant),
                getattr(self, f"{side}_no_credit").eq(no_credit),
            ]
            connect(m, flipped(getattr(self, f"{side}_dma")), unit.dma_packets)
            connect(m, flipped(getattr(self, f"{side}_store")), unit.store_packets)
            connect(m, unit.faults, flipped(getattr(self, f"{side}_faults")))
            for channel in range(config.channels):
                connect(m, unit.requests[channel], flipped(getattr(self, f"{side}_requests")[channel]))
        flips = dict.fromkeys(SIDES, Const(0))
        for sender, receiver in SIDES.items():
            for port in range(config.links):
                model = LinkModel(config)
                m.submodules[f"model_{sender}_{port}"] = model
                rx = units[receiver].rx[port]
                connect(m, units[sender].tx[port], model.tx)
                flip = model.rx.valid & model.rx.payload.header
                flips[receiver] = flips[receiver] | (flip & self.flip.any())
                m.d.comb += [
                    model.stall.eq(self.stall),
                    model.rx_control.eq(units[receiver].rx_control[port]),
                    units[sender].tx_control[port].eq(model.tx_control),
                    rx.valid.eq(model.rx.valid),
                    rx.payload.eq(Mux(model.rx.valid, model.rx.payload, ~model.rx.payload.as_value())),
                    rx.payload.data.eq(model.rx.payload.data ^ Mux(flip, self.flip, 0)),
                    model.rx.ready.eq(rx.ready),
                ]
        tx = units["a"].tx[0]
        m.d.comb += [
            self.flipped_header.eq(Cat(flips.values())),
            self.sent_valid.eq(tx.valid & tx.ready),
            self.sent.eq(tx.payload),
        ]
        return m


class PairBench:
    """Two link units with sources of packets, sinks of writes, and what is expected of them."""

    def __init__(self, dut, config: Configuration, stall: float = 0, memory_stall=None):
        self.dut, self.config, self.messages = dut, config, Messages(config)
        cocotb.start_soon(Clock(dut.clk, 1, unit="ns").start())
        channels = range(config.channels)
        self.sources = {
            (s, k): StreamSource(dut, f"{s}_{k}", dut.clk, stalls(stall)) for s in SIDES for k in ("dma", "store")
        }
        stop = memory_stall or stalls(stall)
        self.requests = {s: [StreamSink(dut, f"{s}_requests__{c}", dut.clk, stop) for c in channels] for s in SIDES}
        self.faults_wait = False
        self.faults = {s: StreamSink(dut, f"{s}_faults", dut.clk, lambda: self.faults_wait) for s in SIDES}
        self.epoch = random.randrange(1, 1 << config.epoch_bits)
        self.ranks = dict(zip(SIDES, random.sample(range(64), 2), strict=True))
        self.expected: dict[str, list] = {"a": [], "b": []}
        self.expected_faults: dict[str, list] = {"a": [], "b": []}
        self.given: dict[str, Counter[str]] = {"a": Counter(), "b": Counter()}
        """Packets and flits given to a side to be sent, and packets that it must accept."""
        self.sent: list[int] = []
        self.flipped = dict.fromkeys(SIDES, 0)
        self.packets = 0
        self.areas = self._random_areas()
        self.event_cycles: Counter[int] = Counter()
        """Cycles by what all ports did in them."""

    def _random_areas(self) -> list[tuple[int, int, int]]:
        """Base, limit and control of ranges anywhere in the address space, two of them next to each other."""
        top = 1 << self.config.va_sector_bits
        while True:
            bases = [random.randrange(1, top - 1000) for _ in range(RANGES)]
            limits = [base + random.randint(16, 400) for base in bases]
            bases[1], limits[1] = limits[0], limits[0] + random.randint(16, 400)
            ordered = sorted(zip(bases, limits, strict=True))
            if all(first[1] <= second[0] for first, second in pairwise(ordered)):
                controls = [random.getrandbits(32) | 1 for _ in range(RANGES)]
                return list(zip(bases, limits, controls, strict=True))

    async def reset(self, armed: bool = True):
        dut = self.dut
        dut.ranges.value, dut.stall.value, dut.flip.value = 0, 0, 0
        for side in SIDES:
            getattr(dut, f"{side}_arm").value = 0
            getattr(dut, f"{side}_armed").value = int(armed)
            getattr(dut, f"{side}_epoch").value = self.epoch
            getattr(dut, f"{side}_rank").value = self.ranks[side]
            getattr(dut, f"{side}_route").value = 0
        dut.rst.value = 1
        for _ in range(2):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        for index, (base, limit, control) in enumerate(self.areas):
            words = {
                Word.CONTROL: control,
                Word.BASE_LOW: base & 0xFFFFFFFF,
                Word.BASE_HIGH: base >> 32,
                Word.LIMIT_LOW: limit & 0xFFFFFFFF,
                Word.LIMIT_HIGH: limit >> 32,
            }
            for word, value in words.items():
                dut.ranges.value = pack(RangeWrite, valid=1, index=index, word=word.value, data=value)
                await RisingEdge(dut.clk)
        dut.ranges.value = 0
        cocotb.start_soon(self._watch())
        observe(watch_link_pair, dut, self.config)
        if armed:
            await self.arm()

    def choose_ranks(self):
        """Give both sides a rank anew; nothing may be under way."""
        self.ranks = dict(zip(SIDES, random.sample(range(64), 2), strict=True))
        for side in SIDES:
            getattr(self.dut, f"{side}_rank").value = self.ranks[side]

    def fix_routes(self, port: int | None = None):
        """Lead each side's packets to link port `port`, or one of its own; returns the port of each."""
        ports = {side: random.randrange(self.config.links) if port is None else port for side in SIDES}
        for side, other in SIDES.items():
            getattr(self.dut, f"{side}_route").value = ports[side] << self.ranks[other]
        return ports

    async def arm(self):
        for side in SIDES:
            getattr(self.dut, f"{side}_armed").value = 1
            getattr(self.dut, f"{side}_arm").value = 1
        await RisingEdge(self.dut.clk)
        for side in SIDES:
            getattr(self.dut, f"{side}_arm").value = 0

    async def _watch(self):
        while True:
            await ReadOnly()
            if int(self.dut.sent_valid.value):
                self.sent.append(int(self.dut.sent.value))
            flipped = int(self.dut.flipped_header.value)
            self.flipped["a"] += flipped & 1
            self.flipped["b"] += flipped >> 1
            self.event_cycles[int(self.dut.events.value)] += 1
            await RisingEdge(self.dut.clk)

    def packet(self, side: str, kind: str, refused: Fault | None = None, length: int | None = None):
        """Queue a random packet at `side`; `refused` makes one that the other side must refuse for that reason."""
        other = SIDES[side]
        length = length or random.choice([1, 8, random.randint(1, 8)])
        index = random.randrange(RANGES)
        base, limit, bits = self.areas[index]
        control = unpack(Control, bits)
        va = random.randrange(base, limit - length + 1)
        while refused is Fault.OUTSIDE and self.is_inside(va, length):
            inside = random.randrange(base, limit - length + 1)
            elsewhere = inside ^ 1 << random.randrange(self.config.va_sector_bits)
            va = random.choice([base - 1, limit - random.randrange(length), elsewhere])
        self.packets += 1
        self.given[side].update(packets=1, flits=1 + length)
        self.given[other]["accepted"] += refused is None
        header = {
            "va": va,
            "wg": random.getrandbits(6) << 10 | self.packets * 2 + (kind == "dma"),
            "wf": random.getrandbits(3),
            "access": random.choice([Access.STORE, Access.UPDATE]).value,
            "alu": random.getrandbits(2),
            "dtype": random.getrandbits(2),
            "traffic_class": random.getrandbits(2),
            "epoch": self.epoch,
            "length": length - 1,
            "mask": random.choice([0xFFFFFFFF, 0xFF, random.getrandbits(32)]),
            "source": self.ranks[side],
            "destination": self.ranks[other] ^ (1 << random.randrange(6) if refused is Fault.DESTINATION else 0),
            "crc": 0,
        }
        flit = self.messages.link_flit
        queue = self.sources[side, kind].queue
        queue.append(pack(flit, header=1, last=0, data=pack(self.messages.link_header, **header)))
        for place in range(length):
            word = random.getrandbits(256)
            last = place == length - 1
            queue.append(pack(flit, header=0, last=last, data=word))
            if refused is None:
                request = {
                    name: header[name] for name in ("access", "alu", "dtype", "traffic_class", "wg", "wf", "epoch")
                }
                request |= {
                    "va": va + place,
                    "mask": header["mask"] if last else 0xFFFFFFFF,
                    "data": word,
                    "range": index,
                    "first_touch": control["first_touch"],
                    "tracked": control["tracked"],
                    "source": 0,
                    "id": 0,
                }
                self.expected[other].append(request)
        if refused is not None:
            names = ("access", "va", "wg", "wf")
            self.expected_faults[other].append(
                {"fault": refused.value, "link": 1} | {name: header[name] for name in names}
            )

    def is_inside(self, va: int, length: int) -> bool:
        """First and last of `length` sectors are in one range."""
        return any(base <= va and va + length <= limit for base, limit, _ in self.areas)

    async def finish(self, limit: int = 60000):
        quiet = 0
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            await ReadOnly()
            idle = all(int(getattr(self.dut, f"{side}_idle").value) for side in SIDES)
            quiet = quiet + 1 if idle and not any(source.queue for source in self.sources.values()) else 0
            if quiet > 2 * self.config.link_latency + 300:
                await RisingEdge(self.dut.clk)
                return
        raise AssertionError("packets never arrived")

    def received(self, side: str) -> list[dict]:
        layout = self.messages.memory_request
        return [unpack(layout, bits) for sink in self.requests[side] for bits in sink.received]

    def check(self, ordered: bool):
        for side in SIDES:
            received = self.received(side)

            def key(request):
                return tuple(sorted(request.items()))

            assert Counter(map(key, received)) == Counter(map(key, self.expected[side]))
            for channel, sink in enumerate(self.requests[side]):
                here = [unpack(self.messages.memory_request, bits) for bits in sink.received]
                assert all((request["va"] >> 3) % self.config.channels == channel for request in here)
                for kind in (0, 1) if ordered else ():
                    due = [
                        r
                        for r in self.expected[side]
                        if r["wg"] % 2 == kind and (r["va"] >> 3) % self.config.channels == channel
                    ]
                    assert [r for r in here if r["wg"] % 2 == kind] == due
            faults = [unpack(self.messages.fault_record, bits) for bits in self.faults[side].received]
            assert Counter(map(key, faults)) == Counter(map(key, self.expected_faults[side]))
            counts = self.counted(side)
            assert counts["sent_packets"] == self.given[side]["packets"]
            assert counts["sent_flits"] == self.given[side]["flits"]
            assert counts["received_packets"] == self.given[side]["accepted"]
        bits = self.messages.link_header.size - 16
        for flit in (unpack(self.messages.link_flit, sent) for sent in self.sent):
            if flit["header"]:
                header = flit["data"]
                assert header >> bits & 0xFFFF == header_crc(header & (1 << bits) - 1, bits)

    def written_packets(self, side: str) -> int:
        """Packets of which `side` has written every sector; so far, they must have come in the order expected."""
        written, due = len(self.received(side)), self.expected[side]
        return sum(place == len(due) or due[place - 1]["wg"] != due[place]["wg"] for place in range(1, written + 1))

    def counted(self, side: str) -> Counter[str]:
        """Sums of the events of a side's ports; none of them may say that it is idle when it is not."""
        return sum((self.counted_at(side, port) for port in range(self.config.links)), Counter())

    def counted_at(self, side: str, port: int) -> Counter[str]:
        """The same of one port."""
        counts: Counter[str] = Counter()
        place = (list(SIDES).index(side) * self.config.links + port) * LinkEvents.size
        for value, cycles in self.event_cycles.items():
            event = unpack(LinkEvents, value >> place & (1 << LinkEvents.size) - 1)
            counts.update({name: flag * cycles for name, flag in event.items()})
            assert event["all_sent"] or not event["idle"]
            assert not (event["received_packets"] and event["idle"])
            assert not (event["all_sent"] and (event["sent_flits"] or event["no_credit"] or event["no_grant"]))
        return counts
