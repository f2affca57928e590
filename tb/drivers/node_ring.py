"""Whole nodes, in a ring unless said otherwise, that Python programs, feeds, aborts and resets: for what no complete
collective shows."""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import cocotb
import numpy as np
from amaranth import Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Combine, ReadOnly, RisingEdge
from cocotbext.axi import AxiResp

from hw.config import INTERLEAVE_SECTORS, SECTOR_BYTES, Configuration
from hw.link.port_sender import LinkTimers
from hw.messages import Access, Messages, TrafficClass
from hw.node import Node
from hw.registers.map import find_register
from hw.registers.register_file import RegisterFile
from sim.collectives import ring_reduce_scatter as programs
from sim.collectives.compiler import Placement, compile_program, workgroup_stride
from sim.golden.ring import ring_reduce_scatter
from sim.host.register_writes import Write, register_write
from sim.host.tiling import Tiling
from sim.models.link import DelayLine, LinkModel, sent_flit
from sim.models.shared_bandwidth import SharedBandwidth
from sim.models.stalls import Stalls
from sim.models.switch import Switch as SwitchModel
from sim.simulator.session import switch_latencies
from sim.topologies.known import Wiring
from sim.topologies.ring import ring
from sim.topologies.switch import Switch
from tb.drivers.payload import pack, unpack
from tb.drivers.stream import StreamSink, StreamSource
from tb.drivers.tagged_dram import SOURCE, TaggedDram
from tb.runner import simulate

ARRAY = 64
"""First sector of the array on every node; the plain memory that tests read lies below."""

LINK_RETRY, LINK_DEAD = 1000, 2000
"""Cycles without an acknowledgement after which a port sends again, and without a message after which it takes its peer
for dead."""


class _Port(NamedTuple):
    """A link port of a node: what it sends to the link, and what the link brings."""

    port: Any
    tx: Any
    arrived: Any


class NodeRing(wiring.Component):
    """`gpus` nodes, each with its DRAM, joined as `topology` says: in a ring without. A switch has half of a link's
    latency before it and half behind it.

    Ports, per node: `axi_<n>_*`; `compute_<n>`, `responses_<n>`, arrays over its channels; `done`, `irq`, a bit each;
    `resets`: of one node alone; `silent`: nothing that it says comes to the others any more, and nothing to it;
    `stall`: probability / 256 that a link takes nothing in a cycle.
    """

    def __init__(self, config: Configuration, gpus: int, node: type[Node] = Node, topology: Wiring | None = None):
        self._config, self._gpus, self._node = config, gpus, node
        self._topology = topology or ring(gpus, config.links)
        messages = Messages(config)
        members = {"done": Out(gpus), "irq": Out(gpus), "resets": In(gpus), "silent": In(gpus), "stall": In(8)}
        for rank in range(gpus):
            members |= {name.replace("axi", f"axi_{rank}"): port for name, port in RegisterFile.axi_members().items()}
            members |= {
                f"compute_{rank}": In(stream.Signature(messages.compute_request)).array(config.channels),
                f"responses_{rank}": Out(stream.Signature(messages.compute_response)).array(config.channels),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, gpus = self._config, self._gpus
        nodes = [self._node(config) for _ in range(gpus)]
        for rank, node in enumerate(nodes):
            # One name for all resets: then all nodes are one module.
            reset = Signal(name="node_reset")
            m.d.comb += reset.eq(self.resets[rank])
            m.submodules[f"node_{rank}"] = ResetInserter(reset)(node)
            for name, member in RegisterFile.axi_members().items():
                port, inner = getattr(self, name.replace("axi", f"axi_{rank}")), getattr(node, name)
                m.d.comb += inner.eq(port) if member.flow == In else port.eq(inner)
            m.d.comb += [self.done[rank].eq(node.done), self.irq[rank].eq(node.irq), node.launches.ready.eq(1)]
            for channel in range(config.channels):
                m.submodules[f"dram_{rank}_{channel}"] = dram = TaggedDram(config)
                connect(m, flipped(getattr(self, f"compute_{rank}")[channel]), node.compute[channel])
                connect(m, node.responses[channel], flipped(getattr(self, f"responses_{rank}")[channel]))
                m.d.comb += [
                    dram.row.eq(node.dram[channel].row),
                    dram.column.eq(node.dram[channel].column),
                    dram.write_data.eq(node.dram[channel].write_data),
                    node.dram[channel].read_data.eq(dram.read_data),
                ]
        m.submodules.stalls = stalls = Stalls(gpus * config.links)
        m.d.comb += [stalls.probability.eq(self.stall), stalls.seed.eq(1)]
        ports = [self._ports(m, rank, node) for rank, node in enumerate(nodes)]
        if isinstance(self._topology, Switch):
            self._switched(m, [only for (only,) in ports], stalls)
            return m
        for rank, port, number, end in self._topology.links():
            m.submodules[f"link_{rank}_{port}"] = link = LinkModel(config)
            here, there = ports[rank][port], ports[number][end]
            silent = self.silent[rank] | self.silent[number]
            connect(m, here.tx, link.tx)
            m.d.comb += [
                link.stall.eq(stalls.stop[rank * config.links + port]),
                there.arrived.valid.eq(link.rx.valid & ~silent),
                there.arrived.flit.eq(link.rx.payload),
                link.rx.ready.eq(1),
                link.rx_messages.eq(there.port.rx_messages),
                here.port.tx_messages.eq(link.tx_messages),
                here.port.tx_messages.valid.eq(link.tx_messages.valid & ~silent),
            ]
        return m

    def _switched(self, m: Module, ports: list[_Port], stalls: Stalls) -> None:
        """Join the nodes, which have one port each, by a switch."""
        there, back = (max(1, half) for half in switch_latencies(self._config.link_latency))
        m.submodules.switch = switch = SwitchModel(self._config, self._gpus)
        m.d.comb += [switch.present.eq(-1), switch.timers.eq(self._switch_timers()), switch.stall.eq(self.stall)]
        for rank, node in enumerate(ports):
            m.submodules[f"to_switch_{rank}"] = link = LinkModel(replace(self._config, link_latency=there))
            m.submodules[f"flits_{rank}"] = flits = DelayLine(switch.link_out[rank].flit.shape(), back, back + 2)
            messages = switch.messages_in[rank]
            m.submodules[f"states_{rank}"] = states = DelayLine(messages.state.shape(), back, back + 2)
            heard = ~self.silent[rank]
            connect(m, node.tx, link.tx)
            m.d.comb += [
                link.stall.eq(stalls.stop[rank]),
                switch.link_in[rank].valid.eq(link.rx.valid & heard),
                switch.link_in[rank].flit.eq(link.rx.payload),
                link.rx.ready.eq(1),
                link.rx_messages.eq(switch.messages_out[rank]),
                node.port.tx_messages.eq(link.tx_messages),
                node.port.tx_messages.valid.eq(link.tx_messages.valid & heard),
                flits.valid.eq(switch.link_out[rank].valid),
                flits.payload.eq(switch.link_out[rank].flit),
                node.arrived.valid.eq(flits.out_valid & heard),
                node.arrived.flit.eq(flits.out_payload),
                states.valid.eq(node.port.rx_messages.valid),
                states.payload.eq(node.port.rx_messages.state),
                messages.valid.eq(states.out_valid & heard),
                messages.state.eq(states.out_payload),
            ]

    def _switch_timers(self) -> Any:
        return LinkTimers.const({"silence": 2 * self._config.link_latency, "retry": LINK_RETRY, "dead": LINK_DEAD})

    def _ports(self, m: Module, rank: int, node: Node) -> list[_Port]:
        """The link ports of a node, behind what they share."""
        if self._topology.shared:
            m.submodules[f"bounds_{rank}"] = bounds = SharedBandwidth(self._config)
        answer = []
        for number in range(self._config.links):
            port = node.link[number]
            if self._topology.shared:
                connect(m, port.tx, bounds.tx[number])
                connect(m, bounds.rx[number], port.rx)
                answer.append(_Port(port, bounds.onto[number], bounds.arrived[number]))
            else:
                arrived = Signal(sent_flit(self._config), name=f"arrived_{rank}_{number}")
                m.d.comb += [port.rx.valid.eq(arrived.valid), port.rx.payload.eq(arrived.flit)]
                answer.append(_Port(port, port.tx, arrived))
        return answer


def simulate_ring(
    nodes: NodeRing, name: str, module: str, case: str, environment: Mapping[str, str], counts: bool = False
) -> None:
    """As :func:`tb.runner.simulate`; no memory has a tag that says more than garbage. Toggles are counted in
    tb/integration/test_addresses.py alone (DECISIONS 168)."""
    simulate(nodes, name, module, case, environment=environment, sources=[SOURCE], plusargs=["+tag=1"], counts=counts)


class RingBench:
    """The host and the compute units of a :class:`NodeRing` joined as `topology`, one chunk of `tiling` per rank, of
    type INT32."""

    def __init__(self, dut, config: Configuration, gpus: int, tiling: Tiling, topology: Wiring | None = None):
        self.topology = topology or ring(gpus, config.links)
        self.dut, self.config, self.gpus, self.tiling = dut, config, gpus, tiling
        self.messages = Messages(config)
        self.ranks = range(gpus)
        self.inputs = (0, 8)
        self.backing = ARRAY + gpus * tiling.sectors
        self.limit = 60000
        """Cycles in which whatever is waited for must happen."""
        channels = range(config.channels)
        dut.resets.value = dut.silent.value = 0
        Clock(dut.clk, 1, unit="ns").start()
        self.compute = [[StreamSource(dut, f"compute_{r}__{c}", dut.clk) for c in channels] for r in self.ranks]
        self.answers = [[StreamSink(dut, f"responses_{r}__{c}", dut.clk) for c in channels] for r in self.ranks]
        for rank in self.ranks:
            for name, member in RegisterFile.axi_members().items():
                if member.flow == In:
                    self._axi(rank, name).value = int(name in ("axi_bready", "axi_rready"))
            self._axi(rank, "axi_wstrb").value = 15
        dut.stall.value = 0

    def _axi(self, rank: int, name: str):
        return getattr(self.dut, name.replace("axi", f"axi_{rank}"))

    async def reset(self) -> None:
        """Reset every node; memories keep what they hold, and what a kernel was about to store is gone."""
        self.dut.rst.value = 1
        # Longer than CL: what was read before must not come back to a node that does not know of it.
        await ClockCycles(self.dut.clk, self.config.timing.cl + 4)
        for source in (source for sources in self.compute for source in sources):
            source.withdraw()
        await ClockCycles(self.dut.clk, 2)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 1)

    async def reset_one(self, rank: int) -> None:
        """Reset one node, while the others go on; the GPU stores nothing meanwhile."""
        self.kill(rank)
        self.dut.resets.value = 1 << rank
        # What the GPU was offering is taken, and lost, in reset.
        await ClockCycles(self.dut.clk, self.config.timing.cl + 6)
        self.dut.resets.value = 0
        await ClockCycles(self.dut.clk, 1)

    async def all_ranks(self, action: Callable, ranks: Iterable[int] | None = None) -> None:
        """Do `action(rank)` on every rank side by side."""
        chosen = self.ranks if ranks is None else ranks
        await Combine(*(cocotb.start_soon(action(rank)) for rank in chosen))

    async def _handshake(self, rank: int, channels: dict[str, dict[str, int]]) -> None:
        waiting = set(channels)
        for channel, values in channels.items():
            self._axi(rank, f"axi_{channel}valid").value = 1
            for name, value in values.items():
                self._axi(rank, f"axi_{name}").value = value
        while waiting:
            await ReadOnly()
            taken = {channel for channel in waiting if int(self._axi(rank, f"axi_{channel}ready").value)}
            await RisingEdge(self.dut.clk)
            for channel in taken:
                self._axi(rank, f"axi_{channel}valid").value = 0
            waiting -= taken

    async def _answer(self, rank: int, channel: str, *names: str) -> list[int]:
        while True:
            await ReadOnly()
            seen, *answer = (int(self._axi(rank, f"axi_{name}").value) for name in (f"{channel}valid", *names))
            await RisingEdge(self.dut.clk)
            if seen:
                return answer

    async def write(self, rank: int, writes: Iterable[Write], response: AxiResp = AxiResp.OKAY) -> None:
        """Make register writes, in order, each of which must be answered by `response`."""
        for address, value in writes:
            await self._handshake(rank, {"aw": {"awaddr": address}, "w": {"wdata": value}})
            (answer,) = await self._answer(rank, "b", "bresp")
            assert answer == response, f"rank {rank}: {AxiResp(answer)!r} for the write of {value:#x} to {address:#x}"

    async def read(self, rank: int, register: str) -> int:
        """A register's value."""
        await self._handshake(rank, {"ar": {"araddr": find_register(self.config, register).address}})
        answer, value = await self._answer(rank, "r", "rresp", "rdata")
        assert answer == AxiResp.OKAY, f"rank {rank}: {AxiResp(answer)!r} for the read of {register}"
        return value

    async def control(self, rank: int, **pulses: int) -> None:
        """Write the control register."""
        await self.write(rank, [register_write(self.config, "control", **pulses)])

    async def status(self, rank: int, field: str) -> int:
        """A field of the status register."""
        found = find_register(self.config, "status").field(field)
        return await self.read(rank, "status") >> found.low & 1

    async def wait(self, rank: int, field: str) -> None:
        """Return when a field of the status register is set."""
        for _ in range(self.limit // 5):
            if await self.status(rank, field):
                return
        raise AssertionError(f"rank {rank}: never {field}")

    async def program(self, rank: int, epoch: int = 1) -> None:
        """The ranges of a reduce-scatter with first touch, a plain range, the backing store."""
        node = compile_program(
            programs.ring_reduce_scatter(self.gpus, dtype="int32"),
            self.config,
            self.topology,
            rank,
            {"output": Placement(ARRAY, self.tiling)},
            epoch=epoch,
            plain=[self.inputs],
            backing=self.backing,
        )
        await self.write(rank, [*self.settings(), *node.writes])

    def settings(self) -> list[Write]:
        """Writes of what is chosen for short runs: no refresh, ports that are silent no longer than they must be."""
        latency = self.config.link_latency
        settings = {
            "arbiter": {"refresh": 0},
            "link_silence": {"link_silence": 2 * latency},
            "link_retry": {"link_retry": LINK_RETRY},
            "link_dead": {"link_dead": LINK_DEAD},
        }
        return [register_write(self.config, register, **values) for register, values in settings.items()]

    async def call(self, rank: int, epoch: int, **pulses: int) -> None:
        """Write the epoch and arm it; it may take effect later."""
        await self.write(rank, [register_write(self.config, "epoch", epoch=epoch)])
        await self.control(rank, arm=1, **pulses)

    async def arm(self, rank: int, epoch: int, **pulses: int) -> None:
        """Arm an epoch and wait for it."""
        await self.call(rank, epoch, **pulses)
        await self.wait(rank, "armed")

    def channel(self, va: int) -> int:
        """The channel that holds a sector."""
        return va // INTERLEAVE_SECTORS % self.config.channels

    def store(self, rank: int, partial: np.ndarray) -> None:
        """Queue the stores of a kernel on `rank`: its partial sums, the chunk for the neighbour first, in waves of
        tiles that take turns at random."""
        tiling, rows = self.tiling, self.tiling.rows
        sectors = partial.reshape(self.gpus * rows, -1).view(np.uint8).reshape(self.gpus * tiling.sectors, SECTOR_BYTES)
        for step in range(self.gpus):
            chunk = (rank - 1 - step) % self.gpus
            tiles = [(wg, wf) for wg in range(tiling.workgroups) for wf in range(tiling.wfs)]
            random.shuffle(tiles)
            for wg, wf in tiles:
                tile = tiling.wf_tile(wg, wf)
                for row in range(tile.rows):
                    for place in range(tile.row_bytes // SECTOR_BYTES):
                        index = chunk * tiling.sectors + tile.offset + row * tiling.pitch_sectors + place
                        request = pack(
                            self.messages.compute_request,
                            access=Access.STORE.value,
                            traffic_class=TrafficClass.GEMM.value,
                            va=ARRAY + index,
                            wg=chunk * self.stride + wg,
                            wf=wf,
                            mask=0xFFFFFFFF,
                            data=int.from_bytes(sectors[index].tobytes(), "little"),
                        )
                        self.compute[rank][self.channel(ARRAY + index)].queue.append(request)

    @property
    def stride(self) -> int:
        """Distance of the first tile numbers of two chunks."""
        return workgroup_stride(self.config, self.tiling)

    def kill(self, rank: int) -> None:
        """End the kernel: it stores nothing more but what it is offering."""
        for source in self.compute[rank]:
            source.drop()

    async def load(self, rank: int, first: int, sectors: int) -> list[tuple[int, int]]:
        """Sectors as the GPU reads them: (error, data) of each."""
        for number in range(sectors):
            request = pack(self.messages.compute_request, access=Access.READ.value, va=first + number, id=number % 256)
            self.compute[rank][self.channel(first + number)].queue.append(request)
        answers = {}
        for _ in range(self.limit):
            for sink in self.answers[rank]:
                while sink.received:
                    answer = unpack(self.messages.compute_response, sink.received.popleft())
                    answers[answer["id"]] = answer["error"], answer["data"]
            if len(answers) == sectors:
                return [answers[number % 256] for number in range(sectors)]
            await RisingEdge(self.dut.clk)
        raise AssertionError(f"rank {rank}: {sectors - len(answers)} of {sectors} reads were not answered")

    def partials(self) -> np.ndarray:
        """Random partial sums of every rank."""
        shape = (self.gpus, self.gpus * self.tiling.rows, self.tiling.pitch_sectors * SECTOR_BYTES // 4)
        return np.frombuffer(random.randbytes(4 * int(np.prod(shape))), dtype=np.uint32).reshape(shape)

    async def finish(self, partials: np.ndarray) -> None:
        """Wait until every rank is done, and compare each one's chunk with the golden sums, bit for bit."""
        for _ in range(self.limit):
            if int(self.dut.done.value) == (1 << self.gpus) - 1:
                break
            await RisingEdge(self.dut.clk)
        else:
            raise AssertionError(f"the collective did not end: done {int(self.dut.done.value):b}")
        expected = ring_reduce_scatter(partials.reshape(self.gpus, -1), "int32", "add")

        async def check(rank: int) -> None:
            first = ARRAY + rank * self.tiling.sectors
            got = await self.load(rank, first, self.tiling.sectors)
            assert not any(error for error, _ in got), f"rank {rank}: reads of the result were refused"
            words = b"".join(data.to_bytes(SECTOR_BYTES, "little") for _, data in got)
            result = np.frombuffer(words, dtype=np.uint32)
            wrong = int((result != expected[rank].reshape(-1)).sum())
            assert not wrong, f"rank {rank}: {wrong} of {result.size} elements are wrong"

        await self.all_ranks(check)

    async def collective(self, epoch: int, **pulses: int) -> None:
        """One whole epoch, checked."""
        partials = self.partials()
        await self.all_ranks(lambda rank: self.arm(rank, epoch, **pulses))
        for rank in self.ranks:
            self.store(rank, partials[rank])
        await self.finish(partials)

    async def plain_range_answers(self, rank: int) -> None:
        """A plain local read is answered."""
        answers = await self.load(rank, *self.inputs)
        assert not any(error for error, _ in answers)
