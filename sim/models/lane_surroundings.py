"""What stands around one lane of a node: DRAM and its checkers, the rate of its part of every link, a recorder."""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect

from hw.config import Configuration
from hw.interfaces import DramBus, LinkPort
from hw.link.wire import FlitKind, header_layout, message_layout
from hw.messages import RowCommand
from hw.near_bank import BankGroupUnit
from sim.models.hbm import Hbm
from sim.models.link import LinkRate, rate_shape, sent_flit
from sim.models.recorder import packet_event, recorder
from sim.models.seeded_bugs import FaultyBankGroup
from sim.models.shared_bandwidth import SharedBandwidth
from sim.models.timing_checker import TimingChecker


def lane_report(links: int) -> data.StructLayout:
    """What is seen around a lane of a node with that many link ports: `violation` of a rule of the DRAM's timing,
    `rule`; `stray`: a write outside the modelled DRAM; `arrivals`: sectors came over links; `link_busy`: busy cycles
    of each outgoing link."""
    return data.StructLayout(
        {
            "violation": unsigned(1),
            "rule": unsigned(8),
            "stray": unsigned(1),
            "arrivals": range(links + 1),
            "link_busy": data.ArrayLayout(unsigned(32), links),
        }
    )


class LaneSurroundings(wiring.PureInterface):
    """What stands around one lane; :meth:`add_to` puts it into a module, its parts named as of number `lane`.

    Ports: `rank` of the GPU, `number` of the lane; `dump`: write the DRAM arrays out; `rates` by link port, of the
    lane's part (:func:`sim.models.link.rate_shape`); `stop`: by link port, no flit leaves in this cycle; `dram` by
    channel and `link` by port, of the lane; by port what goes to and comes from the wires: flits (`link_out`,
    `link_in`), state messages (`messages_out`, `messages_in`); `report`.
    """

    def __init__(
        self,
        config: Configuration,
        storage_sectors: int,
        lane: int = 0,
        seeded_bugs: bool = False,
        shared: bool = False,
        gated_clocks: bool = True,
        logged: bool = False,
    ):
        """As of :class:`sim.models.gpu.Gpu`; `logged`: `command_log.sv` writes down the column commands that change
        what a channel holds."""
        self._config = config
        self._lane = lane
        self._storage_sectors = storage_sectors
        self._unit = FaultyBankGroup if seeded_bugs else BankGroupUnit
        self._shared = shared
        self._gated_clocks = gated_clocks
        self._logged = logged
        flit, message = sent_flit(config), message_layout(config)
        ports = {
            "rank": In(6),
            "number": In(max(1, config.lane_bits)),
            "dump": In(1),
            "rates": In(rate_shape(config)).array(config.links),
            "stop": In(config.links),
            "dram": In(DramBus(config)).array(config.lane_channels),
            "link": In(LinkPort(config)).array(config.links),
            "link_out": Out(flit).array(config.links),
            "link_in": In(flit).array(config.links),
            "messages_out": Out(message).array(config.links),
            "messages_in": In(message).array(config.links),
            "report": Out(lane_report(config.links)),
        }
        super().__init__(wiring.Signature(ports), path=(f"lane_{lane}",))

    def add_to(self, m: Module) -> None:
        """Put all of it into `m`."""
        config = self._config
        for channel in range(config.lane_channels):
            self._channel(m, channel)
        if self._shared:
            bounds = SharedBandwidth(config)
            m.submodules[f"bounds_{self._lane}" if self._lane else "bounds"] = bounds
        for index in range(config.links):
            m.submodules[f"link_{index * config.lanes + self._lane}"] = link = LinkRate(config)
            port, arrived = self.link[index], self.link_in[index]
            if self._shared:
                connect(m, wiring.flipped(port.tx), bounds.tx[index])
                connect(m, bounds.onto[index], link.tx)
                connect(m, bounds.rx[index], wiring.flipped(port.rx))
                m.d.comb += bounds.arrived[index].eq(arrived)
            else:
                connect(m, wiring.flipped(port.tx), link.tx)
                m.d.comb += [port.rx.valid.eq(arrived.valid), port.rx.payload.eq(arrived.flit)]
            m.d.comb += [
                link.rate.eq(self.rates[index]),
                link.stall.eq(self.stop[index]),
                self.link_out[index].eq(link.sent),
                self.messages_out[index].eq(port.rx_messages),
                port.tx_messages.eq(self.messages_in[index]),
                self.report.link_busy[index].eq(link.busy_cycles),
            ]
        arrivals = [flit.valid & (flit.flit.kind == FlitKind.DATA) for flit in self.link_in]
        m.d.comb += self.report.arrivals.eq(sum(arrivals))
        self._recorder(m)

    def _channel(self, m: Module, channel: int) -> None:
        config = self._config
        name = self._lane * config.lane_channels + channel
        m.submodules[f"hbm_{name}"] = hbm = Hbm(config, self._storage_sectors, self._gated_clocks, self._unit)
        m.submodules[f"timing_checker_{name}"] = checker = TimingChecker(config)
        dram = self.dram[channel]
        lane = self.rank * config.lanes + (self.number if config.lanes > 1 else 0)
        m.d.comb += [
            hbm.row.eq(dram.row),
            hbm.column.eq(dram.column),
            hbm.write_data.eq(dram.write_data),
            dram.read_data.eq(hbm.read_data),
            hbm.dump.eq(self.dump),
            hbm.id.eq(lane * config.lane_channels + channel),
            checker.row.eq(dram.row),
            checker.column.eq(dram.column),
            checker.refresh.eq(int(config.timing.refresh)),
        ]
        with m.If(checker.violation):
            m.d.comb += [self.report.violation.eq(1), self.report.rule.eq(checker.rule)]
        with m.If(hbm.stray != 0):
            m.d.comb += self.report.stray.eq(1)
        if self._logged:
            self._log(m, name, hbm)

    def _log(self, m: Module, channel: int, hbm: Hbm) -> None:
        """Let `command_log.sv` write down the column commands that change what `channel` holds."""
        row, column = hbm.row, hbm.column
        m.submodules[f"log_{channel}"] = Instance(
            "command_log",
            p_WL=self._config.timing.wl,
            i_clk=ClockSignal(),
            i_id=hbm.id,
            i_activate=row.valid & (row.command == RowCommand.ACT),
            i_activated_bank=row.bank,
            i_activated_row=row.row,
            i_column=column.valid,
            i_command=column.command.as_value(),
            i_bank=column.bank,
            i_place=column.column,
            i_alu=column.alu.as_value(),
            i_first=column.first_touch,
            i_mask=hbm.write_data.mask,
            i_data=hbm.write_data.data,
        )

    def _recorder(self, m: Module) -> None:
        """Let `recorder.sv` write down what moves on the links; :func:`sim.models.recorded_events.lane_sources`."""
        layout = header_layout(self._config)
        sources: list[tuple[Value, Value]] = []
        for port in self.link:
            for way, flit in (("sent", port.tx), ("received", port.rx)):
                moved = Signal(name=f"{way}_moved")
                m.d.comb += moved.eq(flit.valid & flit.ready)
                header = data.View(layout, Value.cast(flit.payload.data)[: layout.size])
                rank = header.destination if way == "sent" else header.source
                sources.append((moved & (flit.payload.kind == FlitKind.HEADER), packet_event(header, rank)))
                if way == "sent":
                    sources.append((moved & flit.payload.last, Const(0, 64)))
        number = self.number if self._config.lanes > 1 else Const(0, 0)
        m.submodules[f"recorder_{self._lane}"] = recorder(
            "lane", Cat(number[: self._config.lane_bits], self.rank), sources
        )
