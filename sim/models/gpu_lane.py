"""One lane of a simulated GPU as a model of its own: it is compiled once, and a GPU has as many of it as lanes."""

from amaranth import Module
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hw.config import Configuration
from hw.link.wire import message_layout
from hw.memory_lane import MemoryLane
from sim.models.clock_gates import ClockGated
from sim.models.lane_bus import LaneBus, lane_members
from sim.models.lane_surroundings import LaneSurroundings
from sim.models.link import sent_flit


class GpuLane(wiring.Component):
    """The lane itself and what stands around it. Ports: `number` of the lane; `down`, `early` and `late` of
    :class:`LaneBus`; by link port `link_out`, `link_in`, `messages_out`, `messages_in` as of
    :class:`sim.models.gpu.Gpu`."""

    def __init__(self, config: Configuration, storage_sectors: int, shared: bool = False, logged: bool = False):
        """As of :class:`LaneSurroundings`."""
        self._config = config
        self.bus = bus = LaneBus.of(config)
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
        for name, _, flow, port in lane_members(lane):
            field = f"lane_{name}"
            if flow == In:
                m.d.comb += port.eq(self.down[field])
            else:
                part = self.late if field in self.bus.late.fields else self.early
                m.d.comb += Value.cast(part[field]).eq(port)
        return m
