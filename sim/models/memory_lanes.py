"""The way from a GPU's workgroups to its memory: generators of bursts, lanes by channel, the room for remote stores."""

from collections.abc import Sequence

from amaranth import Module
from amaranth.hdl import unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import Configuration
from hw.messages import Messages
from hw.primitives.stream_fork import StreamFork
from sim.models.burst_lanes import BurstGenerator, Gathered, ReadProbe, RequestLane, Task
from sim.models.plan_layout import MAX_SLOTS, Kernel

CHANNELS_OF_A_GENERATOR = 4
"""One burst a cycle for so many channels: sectors as fast as four channels take them where rows have four sectors."""


def kinds(ports: int) -> tuple[str, ...]:
    """Of tasks, bursts and requests, each with a queue of its own: remote stores have one for each of `ports`."""
    return "reads", "stores", *(f"remote_{port}" for port in range(ports))


class RequestSocket(wiring.Component):
    """The ports of a :class:`RequestLane`, with nothing behind them: they lead to one in the model of a lane of the
    node, where its `requests`, `responses` and `room` are joined."""

    def __init__(self, config: Configuration, ports: int):
        super().__init__(RequestLane.ports(config, ports))

    def elaborate(self, platform: object) -> Module:
        return Module()


class MemoryLanes(wiring.Component):
    """Ports: `rank`; `remote_room` of the node; `kernels` by side; `tasks` by :func:`kinds`; `moved`: sectors that
    came back so far for `slot`; `stores_under_way`: sectors whose store was not yet taken, to which `storing` come;
    `remote_under_way`, `storing_to`: the same of the remote stores to each port; `stored`: taken in this cycle, by
    side; `error`: a read was refused; `gathered`, by channel; `probes`, and `requests`/`responses` per channel of the
    node.

    `base`, `source_sectors`, `ports` as of :class:`RequestLane`. Where `sockets` stand in the place of the lanes,
    `requests`, `responses` and `remote_room` lead nowhere.
    """

    def __init__(
        self,
        config: Configuration,
        base: int,
        source_sectors: int = 0,
        ports: int = 1,
        sockets: Sequence[RequestSocket] = (),
    ):
        self._sockets = sockets
        self._config = config
        self._base = base
        self._source_sectors = source_sectors
        self._ports = ports
        messages = Messages(config)
        super().__init__(
            {
                "rank": In(6),
                "remote_room": In(ports).array(config.channels),
                "kernels": In(Kernel).array(2),
                "tasks": In(stream.Signature(Task)).array(len(kinds(ports))),
                "slot": In(range(MAX_SLOTS)),
                "moved": Out(16),
                "storing": In(12),
                "stores_under_way": Out(20),
                "storing_to": In(12).array(ports),
                "remote_under_way": Out(20).array(ports),
                "stored": Out(6).array(2),
                "error": Out(1),
                "gathered": Out(Gathered).array(config.channels),
                "probes": Out(ReadProbe).array(config.channels),
                "requests": Out(stream.Signature(messages.compute_request)).array(config.channels),
                "responses": In(stream.Signature(messages.compute_response)).array(config.channels),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        side_by_side = max(1, config.channels // CHANNELS_OF_A_GENERATOR)
        generators, lanes, counts = [], [], []
        for kind, tasks in zip(kinds(self._ports), self.tasks, strict=True):
            m.submodules[f"{kind}_fork"] = fork = StreamFork(Task, side_by_side)
            connect(m, flipped(tasks), fork.input)
            generators.append([BurstGenerator(config, number, side_by_side) for number in range(side_by_side)])
            for number, generator in enumerate(generators[-1]):
                m.submodules[f"{kind}_bursts_{number}" if number else f"{kind}_bursts"] = generator
                m.d.comb += [port.eq(kernel) for port, kernel in zip(generator.kernels, self.kernels, strict=True)]
                connect(m, fork.outputs[number], generator.tasks)
        for channel in range(config.channels):
            m.submodules[f"lane_{channel}"] = lane = self._lane(channel)
            place, number = divmod(channel, side_by_side)
            for port, of_kind in zip((lane.reads, lane.stores, *lane.remote), generators, strict=True):
                connect(m, of_kind[number].bursts[place], port)
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
                lane.room.eq(self.remote_room[channel]),
                self.gathered[channel].eq(lane.gathered),
                self.probes[channel].eq(lane.probe),
                *(
                    port.eq(kernel.traffic_class)
                    for port, kernel in zip(lane.traffic_classes, self.kernels, strict=True)
                ),
            ]
        m.d.comb += self.moved.eq(sum(counts[1:], counts[0]))

        for side, stored in enumerate(self.stored):
            sent = [lane.sent_store[side] for lane in lanes]
            m.d.comb += stored.eq(sum(sent[1:], sent[0]))
        m.d.sync += self.stores_under_way.eq(self.stores_under_way + self.storing - (self.stored[0] + self.stored[1]))
        for port, (under_way, storing) in enumerate(zip(self.remote_under_way, self.storing_to, strict=True)):
            gone = [lane.sent_remote[port] for lane in lanes]
            m.d.sync += under_way.eq(under_way + storing - sum(gone[1:], gone[0]))
        return m

    def _lane(self, channel: int) -> RequestLane | RequestSocket:
        if self._sockets:
            return self._sockets[channel]
        return RequestLane(self._config, self._source_sectors, self._ports)
