"""The way from a GPU's workgroups to its memory: generators of bursts, lanes by channel, the pace of remote stores."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import SECTOR_BYTES, Configuration
from hw.messages import Messages
from sim.models.burst_lanes import BurstGenerator, Gathered, RequestLane, Task
from sim.models.plan_layout import MAX_SLOTS, Kernel

KINDS = ("reads", "stores", "remote")
"""Of tasks, bursts and requests: each has a queue of its own."""
PACE_BITS = 16
"""Bits after the point of the pace of remote stores, in sectors a cycle."""
PACE_BURST = 8
MOST_PORTS = 15
"""Over which remote stores of a kernel can leave."""


class MemoryLanes(wiring.Component):
    """Ports: `rank`; `kernels` by side; `tasks` by :data:`KINDS`; `moved`: sectors that came back so far for `slot`;
    `stores_under_way`: sectors whose store was not yet taken, to which `storing` come; `stored`: taken in this cycle,
    by side; `error`: a read was refused; `gathered`, by channel; `requests`/`responses` per channel of the node.

    `base`, `source_sectors` as of :class:`RequestLane`.
    """

    def __init__(self, config: Configuration, base: int, source_sectors: int = 0):
        self._config = config
        self._base = base
        self._source_sectors = source_sectors
        messages = Messages(config)
        super().__init__(
            {
                "rank": In(6),
                "kernels": In(Kernel).array(2),
                "tasks": In(stream.Signature(Task)).array(len(KINDS)),
                "slot": In(range(MAX_SLOTS)),
                "moved": Out(16),
                "storing": In(12),
                "stores_under_way": Out(20),
                "stored": Out(6).array(2),
                "error": Out(1),
                "gathered": Out(Gathered).array(config.channels),
                "requests": Out(stream.Signature(messages.compute_request)).array(config.channels),
                "responses": In(stream.Signature(messages.compute_response)).array(config.channels),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        generators, lanes, counts = [], [], []
        for number, kind in enumerate(KINDS):
            m.submodules[f"{kind}_bursts"] = generator = BurstGenerator(config)
            m.d.comb += [port.eq(kernel) for port, kernel in zip(generator.kernels, self.kernels, strict=True)]
            connect(m, flipped(self.tasks[number]), generator.tasks)
            generators.append(generator)
        for channel in range(config.channels):
            m.submodules[f"lane_{channel}"] = lane = RequestLane(config, self._source_sectors)
            for kind, generator in zip(KINDS, generators, strict=True):
                connect(m, generator.bursts[channel], getattr(lane, kind))
            connect(m, lane.requests, flipped(self.requests[channel]))
            connect(m, flipped(self.responses[channel]), lane.responses)
            lanes.append(lane)
            m.submodules[f"moved_{channel}"] = moved = Memory(shape=unsigned(16), depth=MAX_SLOTS, init=[])
            look, before, after = moved.read_port(domain="comb"), moved.read_port(domain="comb"), moved.write_port()
            counts.append(look.data)
            m.d.comb += [
                look.addr.eq(self.slot),
                before.addr.eq(lane.got_slot),
                after.addr.eq(lane.got_slot),
                after.data.eq(before.data + 1),
                after.en.eq(lane.got_read),
            ]
            with m.If(lane.error):
                m.d.comb += self.error.eq(1)
            m.d.comb += [
                lane.rank.eq(self.rank),
                lane.base.eq(self._base),
                self.gathered[channel].eq(lane.gathered),
                *(
                    port.eq(kernel.traffic_class)
                    for port, kernel in zip(lane.traffic_classes, self.kernels, strict=True)
                ),
            ]
        m.d.comb += self.moved.eq(sum(counts[1:], counts[0]))

        # Remote stores go at the pace of the links: what waits for them must not stand before the reads behind it.
        unit = 1 << PACE_BITS
        rate = round(config.link_bytes_per_cycle / SECTOR_BYTES * unit)
        full = PACE_BURST * config.channels * unit
        highest = full + rate * MOST_PORTS
        tokens = Signal(range(highest + 1), init=full)
        spent = sum((lane.remote_sent for lane in lanes[1:]), lanes[0].remote_sent)
        after_pace = Signal(range(highest + 1))
        ports = [kernel.ports for kernel in self.kernels]
        m.d.comb += [
            after_pace.eq(tokens + rate * Mux(ports[0] > ports[1], ports[0], ports[1]) - (spent << PACE_BITS)),
            *(lane.pace.eq(tokens >= config.channels * unit) for lane in lanes),
        ]
        m.d.sync += tokens.eq(Mux(after_pace > full, full, after_pace))
        for side, stored in enumerate(self.stored):
            sent = [lane.sent_store[side] for lane in lanes]
            m.d.comb += stored.eq(sum(sent[1:], sent[0]))
        m.d.sync += self.stores_under_way.eq(self.stores_under_way + self.storing - (self.stored[0] + self.stored[1]))
        return m
