"""One lane of a node's memory side: some of its channels, with their DMA walker, packet slots and a lane of every link.

A node of one lane is a slice of a GPU, the whole GPU is the same node with several. Interleave is the same on all GPUs
and sends keep it (hw/DECISIONS.md 80), so what a lane sends arrives in the same lane of its peer and lanes never meet.
Source: T3 (ASPLOS 2024) Fig 8.
"""

from amaranth import Cat, Const, Module
from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .address_map import AddressMap
from .config import Configuration
from .dma.engine import DmaEngine
from .dma.events import DmaEvents
from .interfaces import DramBus, LinkPort, gathered, gathered_ports
from .link.egress import DMA, STORES
from .link.events import LinkEvents
from .link.lane import LinkLane
from .link.packet_writer import PeerCheck
from .link.packetizer import StorePacketizer
from .link.port_sender import LinkTimers
from .memory_controller.controller import MemoryController
from .memory_controller.events import ControllerEvents
from .memory_window import WindowCheck
from .messages import ArbiterControl, Messages
from .next_word_upset import NextWordUpset
from .primitives.clock_enable import sleeping_submodule
from .primitives.stream_arbiter import StreamArbiter
from .protection import MemoryReport, MemoryUpset, ProtectedMemory, TableUser
from .range_table import range_write
from .send_table import send_write

LANE_USERS = (TableUser.ADDRESS_MAP, TableUser.DMA, TableUser.RECEIVER, TableUser.SENDER)
"""Kinds of blocks in a lane that have copies of words of tables, in the order of their bits."""

LaneState = data.StructLayout(dict.fromkeys(("holding", "unsettled", "sent_out", "moved", "idle"), unsigned(1)))
"""What a lane has in hand. `holding`: something of an epoch that ends only once it is gone; `unsettled`: a write that
is not at its bank; `sent_out`: the wires have taken every packet that was begun, and none will follow unless a block or
a store comes; `moved`: something of an epoch moved in this cycle; `idle`: nothing is queued or in flight."""


class MemoryLane(wiring.Component):
    """Controllers, address maps, DMA engine, packetizer and link lane of `lane_channels` channels.

    Ports: `number` of the lane, constant, if there are others; `ranges`, `sends`: programming buses; `window`,
    `timers`, `rank`, `peers`, `notice`, `give_up`: see :class:`hw.link.lane.LinkLane`; `control`, `kernel_active`: of
    the arbiters; `epoch`, `armed`; `clear`: pulse, at the start of an epoch; per channel `compute`, `responses`, `dram`
    as of the node, `commits` to the Tracker, `clearing` and `spill`: writes of the memory clear and accesses to the
    backing store, `returns`: data of reads; `remote_room`: see :attr:`hw.node.Node.remote_room`; `link`: a lane of
    every port; `blocks`: ready blocks, each for all lanes; `sent_blocks` since `clear`; `heard`: see LinkLane;
    `map_faults` per channel, `link_faults`, `dma_faults`; `events` per channel, `refused` per channel, `dma_events`,
    `link_events` per port, `discarded`: for the counters; `link_empty`: no packet is in a slot; `lane_state`; with
    protection of memories `upset`, of this lane's number or its channels', `memory_reports` per channel, and
    `tables_wrong`, pulses: a word of a table that had a wrong bit was used, by which of :data:`LANE_USERS`, and
    `queues_wrong`, a pulse: something in a queue was, but data. Latency: none of its own.
    """

    def __init__(self, config: Configuration):
        self._config = config
        super().__init__(self.ports(config))

    @staticmethod
    def ports(config: Configuration) -> dict[str, wiring.Member]:
        """Ports of a lane of `config`."""
        messages = Messages(config)
        channels, links = config.lane_channels, config.links
        faults = stream.Signature(messages.fault_record)
        requests = stream.Signature(messages.memory_request)
        protected = {
            "upset": In(MemoryUpset),
            "memory_reports": Out(MemoryReport).array(channels),
            "tables_wrong": Out(len(LANE_USERS)),
            "queues_wrong": Out(1),
        }
        return {
            **({"number": In(config.lane_bits)} if config.lanes > 1 else {}),
            "ranges": In(range_write(config)),
            "sends": In(send_write(config)),
            "window": In(WindowCheck),
            "timers": In(LinkTimers),
            "rank": In(6),
            "peers": In(PeerCheck).array(links),
            "notice": In(messages.epoch),
            "give_up": In(1),
            "control": In(ArbiterControl),
            "kernel_active": In(1),
            "epoch": In(messages.epoch),
            "armed": In(1),
            "clear": In(1),
            "compute": In(stream.Signature(messages.compute_request)).array(channels),
            "responses": Out(stream.Signature(messages.compute_response)).array(channels),
            "dram": Out(DramBus(config)).array(channels),
            "commits": Out(stream.Signature(messages.commit)).array(channels),
            "clearing": In(requests).array(channels),
            "spill": In(requests).array(channels),
            "returns": Out(messages.read_return).array(channels),
            "remote_room": Out(links).array(channels),
            "link": Out(LinkPort(config)).array(links),
            "blocks": In(stream.Signature(messages.ready_block)),
            "sent_blocks": Out(20),
            "heard": Out(messages.epoch).array(links),
            "map_faults": Out(faults).array(channels),
            "link_faults": Out(faults),
            "dma_faults": Out(faults),
            "events": Out(ControllerEvents).array(channels),
            "refused": Out(1).array(channels),
            "dma_events": Out(DmaEvents),
            "link_events": Out(LinkEvents).array(links),
            "discarded": Out(1),
            "link_empty": Out(1),
            "lane_state": Out(LaneState),
            **(protected if config.checks_sectors else {}),
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, messages = self._config, Messages(self._config)
        m.submodules.links = links = LinkLane(config)
        dma = DmaEngine(config)
        packetizer = StorePacketizer(config)
        for name, block in {"dma": dma, "packetizer": packetizer}.items():
            sleeping_submodule(m, name, block)
        maps, controllers = [], []
        for channel in range(config.lane_channels):
            m.submodules[f"address_map_{channel}"] = address_map = AddressMap(config)
            m.submodules[f"controller_{channel}"] = controller = self._controller()
            m.submodules[f"communication_{channel}"] = merge = StreamArbiter(messages.memory_request, 3)
            m.submodules[f"responses_{channel}"] = answers = StreamArbiter(messages.compute_response, 2)
            maps.append(address_map)
            controllers.append(controller)
            connect(m, flipped(self.compute[channel]), address_map.requests)
            connect(m, address_map.local, controller.compute)
            connect(m, address_map.remote, packetizer.stores[channel])
            connect(m, links.requests[channel], merge.inputs[0])
            connect(m, dma.reads[channel], merge.inputs[1])
            connect(m, flipped(self.clearing[channel]), merge.inputs[2])
            connect(m, merge.output, controller.communication)
            connect(m, flipped(self.spill[channel]), controller.spill)
            connect(m, controller.commits, flipped(self.commits[channel]))
            connect(m, controller.compute_response, answers.inputs[0])
            connect(m, address_map.refused_reads, answers.inputs[1])
            connect(m, answers.output, flipped(self.responses[channel]))
            connect(m, gathered_ports(DramBus(config), controller), flipped(self.dram[channel]))
            connect(m, address_map.faults, flipped(self.map_faults[channel]))
            m.d.comb += [
                dma.returns[channel].eq(controller.returns),
                self.returns[channel].eq(controller.returns),
                self.events[channel].eq(controller.events),
                self.refused[channel].eq(address_map.refused),
                self.remote_room[channel].eq(packetizer.room[channel]),
                controller.kernel_active.eq(self.kernel_active),
                controller.control.eq(self.control),
                address_map.ranges.eq(self.ranges),
                address_map.sends.eq(self.sends),
                address_map.window.eq(self.window),
                *(port.eq(known) for port, known in zip(address_map.port_of, links.port_of, strict=True)),
                address_map.epoch.eq(self.epoch),
                address_map.armed.eq(self.armed),
            ]
        connect(m, flipped(self.blocks), dma.blocks)
        connect(m, dma.slots, links.sources[DMA])
        connect(m, packetizer.slots, links.sources[STORES])
        connect(m, links.faults, flipped(self.link_faults))
        connect(m, dma.faults, flipped(self.dma_faults))
        for index in range(config.links):
            port = LinkPort(config)
            members = {name: getattr(links, name)[index] for name in port.members}
            connect(m, gathered(port, **members), flipped(self.link[index]))
            m.d.comb += [
                links.peers[index].eq(self.peers[index]),
                self.heard[index].eq(links.heard[index]),
                self.link_events[index].eq(links.events[index]),
            ]
        m.d.comb += [
            *(
                getattr(links, name).eq(getattr(self, name))
                for name in ("ranges", "sends", "window", "timers", "rank", "epoch", "armed", "notice", "give_up")
            ),
            *(
                getattr(dma, name).eq(getattr(self, name))
                for name in ("ranges", "sends", "window", "epoch", "armed", "clear")
            ),
            *(block.lane.eq(self.number) for block in (links, dma) if config.lanes > 1),
            *(
                port.eq(known)
                for block in (dma, packetizer)
                for port, known in zip(block.port_of, links.port_of, strict=True)
            ),
            dma.block_sent.eq(links.block_sent),
            self.sent_blocks.eq(dma.sent_blocks),
            self.dma_events.eq(dma.events),
            self.discarded.eq(links.discarded),
            self.link_empty.eq(links.empty),
        ]
        arrivals = [*dma.arrivals, packetizer.arrival]
        for arrival, own in zip(links.arrivals, arrivals, strict=True):
            m.d.comb += arrival.eq(own)
        if config.checks_sectors:
            self._protect(m, controllers, links, arrivals)
            m.d.comb += self.tables_wrong.eq(
                Cat(
                    Cat(address_map.tables_wrong for address_map in maps).any(),
                    dma.tables_wrong,
                    links.ranges_wrong,
                    links.sends_wrong,
                )
            )
            keepers = (*maps, *controllers, dma, packetizer, links)
            m.d.comb += self.queues_wrong.eq(Cat(block.queues_wrong for block in keepers).any())
        state = self.lane_state
        events = [controller.events for controller in controllers]
        m.d.comb += [
            # Whatever moves from one of these to the next is seen in one of them in every cycle.
            state.holding.eq(
                Cat(
                    *(address_map.holding for address_map in maps),
                    *(event.unsettled for event in events),
                    *(event.writing for event in links.events),
                    ~links.empty,
                    ~dma.idle,
                    ~packetizer.idle,
                ).any()
            ),
            state.unsettled.eq(Cat(event.unsettled for event in events).any()),
            state.sent_out.eq(links.all_left & dma.idle & packetizer.idle),
            state.moved.eq(
                Cat(
                    *(event.left | event.received_packets for event in links.events),
                    dma.events.reads.any(),
                    packetizer.arrival.valid,
                ).any()
            ),
            state.idle.eq(Cat(event.idle for event in events).all() & links.idle & dma.idle & packetizer.idle),
        ]
        return m

    def _protect(
        self, m: Module, controllers: list[MemoryController], links: LinkLane, arrivals: list[data.View]
    ) -> None:
        """Upsets of the sectors in controllers and slots, and what is found of sectors."""
        config = self._config
        m.submodules.packet_upset = turns = NextWordUpset(ProtectedMemory.PACKETS, len(arrivals[0].data))
        upset = self.upset
        m.d.comb += [turns.upset.eq(upset), turns.stored.eq(Cat(own.valid for own in arrivals).any())]
        number = self.number if config.lanes > 1 else Const(0, 0)
        if config.lanes > 1:
            with m.If(upset.address != number):
                m.d.comb += turns.upset.memory.eq(ProtectedMemory.COUNTERS)
        for arrival, own in zip(links.arrivals, arrivals, strict=True):
            m.d.comb += arrival.data.eq(own.data ^ turns.flips)
        for channel, controller in enumerate(controllers):
            place = Cat(Const(channel, config.lane_channel_bits), number)
            m.d.comb += [
                controller.upset.eq(upset),
                self.memory_reports[channel].eq(controller.report),
                self.memory_reports[channel].address.eq(place),
            ]
            with m.If(upset.address != place):
                m.d.comb += controller.upset.memory.eq(ProtectedMemory.COUNTERS)

    def _controller(self) -> wiring.Component:
        return MemoryController(self._config)
