"""Two link lanes, with their ports and tables by side."""

from collections.abc import Callable

from amaranth import Cat, Module, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.link.events import LinkEvents
from hw.link.lane import LinkLane
from hw.link.packet_writer import PeerCheck
from hw.link.parameters import LinkParameters
from hw.link.port_sender import LinkTimers
from hw.link.wire import arrival_layout, flit_layout, message_layout, packet_layout
from hw.memory_window import WindowCheck
from hw.messages import Messages
from hw.range_table import RangeWrite
from hw.send_table import SendWrite
from tb.drivers.packet_routes import announce_packets

SIDES = {"a": "b", "b": "a"}


class LanePair(wiring.Component):
    """Lanes `a` and `b`, each with a reset of its own; what the ports send and hear is in one vector per side."""

    def __init__(self, parameters: LinkParameters, lane: Callable[[LinkParameters], LinkLane] = LinkLane):
        self._parameters = parameters
        self._lane = lane
        messages = Messages(parameters)
        links = parameters.links
        members = {"ranges": In(RangeWrite)}
        for side in SIDES:
            members |= {
                f"{side}_reset": In(1),
                f"{side}_sends": In(SendWrite),
                f"{side}_timers": In(LinkTimers),
                f"{side}_rank": In(6),
                f"{side}_peer": In(PeerCheck),
                f"{side}_epoch": In(messages.epoch),
                f"{side}_armed": In(1),
                f"{side}_notice": In(messages.epoch),
                f"{side}_window": In(WindowCheck),
                f"{side}_give_up": In(1),
                f"{side}_port_of": Out(data.ArrayLayout(4, parameters.sends)),
                f"{side}_heard": Out(data.ArrayLayout(messages.epoch, links)),
                f"{side}_packets": In(data.ArrayLayout(packet_layout(parameters), 2)),
                f"{side}_banks": In(range(parameters.slot_banks)).array(2),
                f"{side}_close": In(2),
                f"{side}_room": Out(2),
                f"{side}_slots": Out(data.ArrayLayout(parameters.slot_bits, 2)),
                f"{side}_arrivals": In(data.ArrayLayout(arrival_layout(parameters), parameters.slot_banks)),
                f"{side}_tx_valid": Out(links),
                f"{side}_tx_ready": In(links),
                f"{side}_tx": Out(data.ArrayLayout(flit_layout(parameters), links)),
                f"{side}_rx_valid": In(links),
                f"{side}_rx": In(data.ArrayLayout(flit_layout(parameters), links)),
                f"{side}_tx_messages": In(data.ArrayLayout(message_layout(parameters), links)),
                f"{side}_rx_messages": Out(data.ArrayLayout(message_layout(parameters), links)),
                f"{side}_requests": Out(stream.Signature(messages.memory_request)).array(parameters.channels),
                f"{side}_faults": Out(stream.Signature(messages.fault_record)),
                f"{side}_events": Out(data.ArrayLayout(LinkEvents, links)),
                f"{side}_block_sent": Out(1),
                f"{side}_discarded": Out(1),
                f"{side}_all_left": Out(1),
                f"{side}_empty": Out(1),
                f"{side}_idle": Out(1),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for side in SIDES:
            lane = self._lane(self._parameters)

            def port(name: str, side: str = side):
                return getattr(self, f"{side}_{name}")

            # One name for both resets: then both lanes are one module.
            reset = Signal(name="lane_reset")
            m.d.comb += reset.eq(port("reset"))
            m.submodules[side] = ResetInserter(reset)(lane)
            m.d.comb += lane.ranges.eq(self.ranges)
            for name in ("sends", "timers", "rank", "epoch", "armed", "notice", "window", "give_up"):
                m.d.comb += getattr(lane, name).eq(port(name))
            for name in ("block_sent", "discarded", "all_left", "empty", "idle"):
                m.d.comb += port(name).eq(getattr(lane, name))
            m.d.comb += [
                *(peer.eq(port("peer")) for peer in lane.peers),
                *(port("port_of")[n].eq(known) for n, known in enumerate(lane.port_of)),
                port("room").eq(Cat(source.room for source in lane.sources)),
                *(port("slots")[n].eq(source.slot) for n, source in enumerate(lane.sources)),
                *(source.packet.eq(port("packets")[n]) for n, source in enumerate(lane.sources)),
                *(source.bank.eq(port("banks")[n]) for n, source in enumerate(lane.sources)),
                *(source.close.eq(port("close")[n]) for n, source in enumerate(lane.sources)),
                *(arrival.eq(port("arrivals")[n]) for n, arrival in enumerate(lane.arrivals)),
            ]
            for n in range(len(lane.sources)):
                announce_packets(m, side, self._parameters, lane, n)
            for n in range(self._parameters.links):
                m.d.comb += [
                    port("tx_valid")[n].eq(lane.tx[n].valid),
                    port("tx")[n].eq(lane.tx[n].payload),
                    lane.tx[n].ready.eq(port("tx_ready")[n]),
                    lane.rx[n].valid.eq(port("rx_valid")[n]),
                    lane.rx[n].payload.eq(port("rx")[n]),
                    lane.tx_messages[n].eq(port("tx_messages")[n]),
                    port("rx_messages")[n].eq(lane.rx_messages[n]),
                    port("events")[n].eq(lane.events[n]),
                    port("heard")[n].eq(lane.heard[n]),
                ]
            for channel, requests in enumerate(lane.requests):
                connect(m, requests, flipped(port("requests")[channel]))
            connect(m, lane.faults, flipped(port("faults")))
        return m
