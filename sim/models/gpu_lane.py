"""One lane of a simulated GPU as a model of its own: it is compiled once, and a GPU has as many of it as lanes."""

from amaranth import Module
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hw.config import Configuration
from hw.link.wire import message_layout
from hw.memory_lane import MemoryLane
from sim.host.address_space import ARRAY_BASE
from sim.models.burst_lanes import RequestLane
from sim.models.clock_gates import ClockGated
from sim.models.lane_bus import LaneBus, lane_members
from sim.models.lane_surroundings import LaneSurroundings
from sim.models.link import sent_flit


class GpuLane(wiring.Component):
    """The lane itself, what stands around it, and what makes its requests. Ports: `number` of the lane; `down`, `early`
    and `late` of :class:`LaneBus`; by link port `link_out`, `link_in`, `messages_out`, `messages_in` as of
    :class:`sim.models.gpu.Gpu`."""

    def __init__(
        self,
        config: Configuration,
        storage_sectors: int,
        shared: bool = False,
        logged: bool = False,
        source_sectors: int = 0,
        request_ports: int = 0,
    ):
        """As of :class:`LaneSurroundings`; with `request_ports` of the link it makes the requests of its channels:
        `source_sectors` and they as of :class:`sim.models.burst_lanes.RequestLane`."""
        self._config = config
        self._source_sectors = source_sectors
        self._request_ports = request_ports
        self.bus = bus = LaneBus.of(config, request_ports)
        self._storage_sectors = storage_sectors
        self._shared = shared
        self._logged = logged
        flit, message = sent_flit(config), message_layout(config)
        super().__init__(
            {
                "number": In(config.lane_bits),
                "down": In(bus.down),
                "early": Out(bus.early),
                "late": Out(bus.late),
                "link_out": Out(flit).array(config.links),
                "link_in": In(flit).array(config.links),
                "messages_out": Out(message).array(config.links),
                "messages_in": In(message).array(config.links),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        lane = MemoryLane(config)
        m.submodules.lane = ClockGated(lane)
        around = LaneSurroundings(config, self._storage_sectors, shared=self._shared, logged=self._logged)
        around.add_to(m)
        for channel, dram in enumerate(around.dram):
            connect(m, lane.dram[channel], dram)
        for index, link in enumerate(around.link):
            connect(m, lane.link[index], link)
            m.d.comb += [
                self.link_out[index].eq(around.link_out[index]),
                around.link_in[index].eq(self.link_in[index]),
                self.messages_out[index].eq(around.messages_out[index]),
                around.messages_in[index].eq(self.messages_in[index]),
            ]
        m.d.comb += [
            lane.number.eq(self.number),
            around.number.eq(self.number),
            around.rank.eq(self.down.rank),
            around.dump.eq(self.down.dump),
            around.stop.eq(self.down.stop),
            *(rate.eq(self.down[f"rate_{port}"]) for port, rate in enumerate(around.rates)),
            self.early.report.eq(around.report),
        ]
        for member in lane_members(lane, self._requests(m, lane)):
            if member.flow == In:
                m.d.comb += member.port.eq(self.down[member.field])
            else:
                part = self.late if member.field in self.bus.late.fields else self.early
                m.d.comb += Value.cast(part[member.field]).eq(member.port)
        return m

    def _requests(self, m: Module, lane: MemoryLane) -> list[RequestLane]:
        """What makes the requests of its channels, if it does."""
        answer = []
        for channel in range(self._config.lane_channels if self._request_ports else 0):
            requests = RequestLane(self._config, self._source_sectors, self._request_ports)
            m.submodules[f"requests_{channel}"] = requests
            connect(m, requests.requests, lane.compute[channel])
            connect(m, lane.responses[channel], requests.responses)
            m.d.comb += [
                requests.rank.eq(self.down.rank),
                requests.base.eq(ARRAY_BASE),
                requests.room.eq(lane.remote_room[channel]),
            ]
            answer.append(requests)
        return answer
