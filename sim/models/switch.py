"""A switch with one port for each GPU: virtual output queues, credits and acknowledgements of every hop, whole packets.

The link protocol ends at each port: sessions, sequence numbers, credits, checks and replay are of a hop, and are those
of `hw.link`. Of a packet the switch knows its destination, length and epoch. What is said of an epoch passes through:
a GPU is granted one when all others have granted it, and hears of every abort.
"""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hw.config import Configuration
from hw.link.port_sender import LinkTimers
from hw.link.turns import Turns
from hw.link.wire import message_layout
from hw.messages import Messages
from sim.models.link import LinkRate, sent_flit
from sim.models.stalls import Stalls
from sim.models.switch_input import SwitchInput
from sim.models.switch_output import SwitchOutput, peer_state
from sim.models.switch_parameters import SwitchParameters, switch_parameters


class SwitchAgreement(wiring.Component):
    """What the GPUs are told of one another.

    Ports: `present`; by port `peers`: what each says, `granted`, `epoch`, `notice`: what it is told. A GPU is granted
    an epoch that all others grant. It hears the notices of the others in turns of `link_repeat` cycles, so that two
    aborts of different epochs both reach it; a new one at once. Latency 1 cycle.
    """

    def __init__(self, parameters: SwitchParameters):
        self._parameters = parameters
        ports = parameters.switch_ports
        epoch = Messages(parameters).epoch
        super().__init__(
            {
                "present": In(ports),
                "peers": In(peer_state(parameters)).array(ports),
                "granted": Out(ports),
                "epoch": Out(epoch).array(ports),
                "notice": Out(epoch).array(ports),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ports = range(self._parameters.switch_ports)
        for port in ports:
            others = [other for other in ports if other != port]
            epoch = Signal.like(self.epoch[port], name=f"epoch_{port}")
            for other in reversed(others):
                with m.If(self.present[other]):
                    m.d.comb += epoch.eq(self.peers[other].epoch)
            agreed = [
                ~self.present[other] | (self.peers[other].granted & (self.peers[other].epoch == epoch))
                for other in others
            ]
            m.d.sync += [self.granted[port].eq(Cat(agreed).all()), self.epoch[port].eq(epoch)]
        self._notices(m)
        return m

    def _notices(self, m: Module) -> None:
        repeat = self._parameters.link_repeat
        notices = [peer.notice for peer in self.peers]
        loud = Signal(len(notices))
        new = Signal(len(notices))
        since = Signal(range(repeat + 1))
        speaks = Signal(len(notices))
        m.submodules.turns = turns = Turns(len(notices))
        m.d.comb += [
            loud.eq(Cat(notice != 0 for notice in notices)),
            turns.asks.eq(loud),
            turns.taken.eq(new.any() | (since == repeat)),
        ]
        m.d.sync += since.eq(since + 1)
        for number, notice in enumerate(notices):
            before = Signal.like(notice, name=f"before_{number}")
            m.d.sync += before.eq(notice)
            m.d.comb += new[number].eq((notice != before) & (notice != 0))
        with m.If(new.any()):
            m.d.comb += turns.asks.eq(new)
        with m.If(turns.taken):
            m.d.sync += [speaks.eq(turns.has), since.eq(0)]
        for port, told in enumerate(self.notice):
            for number, notice in enumerate(notices):
                if number != port:
                    with m.If(speaks[number]):
                        m.d.sync += told.eq(notice)
            with m.If(~Cat(loud[number] for number in range(len(notices)) if number != port).any()):
                m.d.sync += told.eq(0)


class Switch(wiring.Component):
    """One lane of a switch of `ports` ports between GPUs of `config`, and the rate of the links that leave it.

    Ports: `present`: a bit for each port that a GPU is joined to; `timers`; `stall`: probability / 256 that a link
    takes nothing in a cycle; by port flits from its GPU and to it (`link_in`, `link_out`), state messages
    (`messages_in`, `messages_out`); `busy_cycles` of the link to the GPU; `stray`: a packet was for nobody, from then
    on. The source of a packet is not looked at. Latency: last flit of a packet to its header 7 cycles. A packet for an
    output that stands keeps one slot of its input; others pass it.
    """

    def __init__(self, config: Configuration, ports: int):
        self._config = config
        self._parameters = parameters = switch_parameters(config, ports)
        flit, message = sent_flit(parameters), message_layout(parameters)
        super().__init__(
            {
                "present": In(ports),
                "timers": In(LinkTimers),
                "stall": In(8),
                "link_in": In(flit).array(ports),
                "link_out": Out(flit).array(ports),
                "messages_in": In(message).array(ports),
                "messages_out": Out(message).array(ports),
                "busy_cycles": Out(32).array(ports),
                "stray": Out(1),
            }
        )

    @property
    def parameters(self) -> SwitchParameters:
        """Its sizes."""
        return self._parameters

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parameters = self._parameters
        ports = range(parameters.switch_ports)
        inputs = [self._input(parameters, number) for number in ports]
        outputs = [self._output(parameters) for _ in ports]
        m.submodules.agreement = agreement = self._agreement(parameters)
        m.submodules.stalls = stalls = Stalls(parameters.switch_ports)
        m.d.comb += [
            agreement.present.eq(self.present),
            stalls.probability.eq(self.stall),
            stalls.seed.eq(parameters.switch_ports),
        ]
        for number, (arrivals, leaving) in enumerate(zip(inputs, outputs, strict=True)):
            m.submodules[f"input_{number}"] = arrivals
            m.submodules[f"output_{number}"] = leaving
            m.submodules[f"link_{number}"] = link = LinkRate(self._config)
            connect(m, leaving.tx, link.tx)
            m.d.comb += [
                arrivals.timers.eq(self.timers),
                arrivals.present.eq(self.present),
                arrivals.arrived.eq(self.link_in[number]),
                arrivals.granted.eq(agreement.granted[number]),
                arrivals.epoch.eq(agreement.epoch[number]),
                arrivals.notice.eq(agreement.notice[number]),
                self.messages_out[number].eq(arrivals.message),
                leaving.timers.eq(self.timers),
                leaving.message.eq(self.messages_in[number]),
                *(leaving.aborted[other].eq(outputs[other].peer.notice) for other in ports),
                agreement.peers[number].eq(leaving.peer),
                link.stall.eq(stalls.stop[number]),
                self.link_out[number].eq(link.sent),
                self.busy_cycles[number].eq(link.busy_cycles),
            ]
            with m.If(arrivals.stray):
                m.d.sync += self.stray.eq(1)
        self._cross(m, inputs, outputs)
        return m

    def _input(self, parameters: SwitchParameters, number: int) -> SwitchInput:
        return SwitchInput(parameters, number)

    def _output(self, parameters: SwitchParameters) -> SwitchOutput:
        return SwitchOutput(parameters)

    def _agreement(self, parameters: SwitchParameters) -> SwitchAgreement:
        return SwitchAgreement(parameters)

    def _cross(self, m: Module, inputs: list[SwitchInput], outputs: list[SwitchOutput]) -> None:
        """Join every input with every output."""
        for to, leaving in enumerate(outputs):
            for number, arrivals in enumerate(inputs):
                connect(m, arrivals.offers[to], leaving.offers[number])
                read, release = arrivals.reads[to], arrivals.releases[to]
                m.d.comb += [
                    read.valid.eq(leaving.read & (leaving.bank == number)),
                    read.slot.eq(leaving.slot),
                    read.place.eq(leaving.place),
                    leaving.words[number].eq(arrivals.words[to]),
                    release.valid.eq(leaving.release & (leaving.released.bank == number)),
                    release.slot.eq(leaving.released.slot),
                ]
            m.d.comb += leaving.release_taken.eq(Cat(arrivals.release_taken[to] for arrivals in inputs).any())
