"""An ideal switch as a GPU sees it: all its ports together have the bandwidth of one link, each way.

Nothing waits in such a switch but for the link into it and the link out of it. So it is a mesh of links, with a bound
on what leaves a GPU by all ports (injection) and on what reaches it (ejection). Before the ejection there is a queue
for every source, and sources take turns, as they do at the injection.
"""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Configuration
from hw.link.wire import FlitKind, flit_layout
from hw.primitives.queue import Queue
from hw.primitives.round_robin import next_in_turn
from sim.models.link import TokenBucket, sent_flit

FLITS = 9
"""Of the longest packet."""


class SharedBandwidth(wiring.Component):
    """The bounds of one GPU with `links` ports.

    Ports, per link port: `tx`: flits of the node, `onto`: the same for the links; `arrived`: what the links bring, at
    most a flit a cycle and port, never refused; `rx`: the same for the node, whose `ready` is not looked at. A queue
    takes all that a port may send without the receiver's consent; were it full, what arrives would be lost, as on a
    wire, and sent again. Latency: 0 cycles where nothing waits.
    """

    bucket = TokenBucket
    """What bounds each way."""

    def __init__(self, config: Configuration):
        self._config = config
        flits = stream.Signature(flit_layout(config))
        links = config.links
        super().__init__(
            {
                "tx": In(flits).array(links),
                "onto": Out(flits).array(links),
                "arrived": In(sent_flit(config)).array(links),
                "rx": Out(flits).array(links),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        waiting = []
        for port in range(config.links):
            queue = Queue(flit_layout(config), FLITS * config.link_receive_packets, bypass=True)
            m.submodules[f"ejected_{port}"] = queue
            arrived, into = self.arrived[port], queue.i
            m.d.comb += [into.valid.eq(arrived.valid), into.payload.eq(arrived.flit)]
            waiting.append(queue.o)
        for name, sources, sinks in (("injection", self.tx, self.onto), ("ejection", waiting, self.rx)):
            m.submodules[name] = turns = _Turns(config, self.bucket(config))
            for port, (source, sink) in enumerate(zip(sources, sinks, strict=True)):
                passes = turns.passes[port]
                m.d.comb += [
                    sink.payload.eq(source.payload),
                    sink.valid.eq(passes),
                    source.ready.eq(passes),
                    turns.waits[port].eq(source.valid & (sink.ready if name == "injection" else 1)),
                    turns.kinds[port].eq(source.payload.kind),
                ]
        return m


class _Turns(wiring.Component):
    """One `bucket` for all ports: of those whose flit `waits`, one of `kinds` a cycle, the next in turn `passes`."""

    def __init__(self, config: Configuration, bucket: TokenBucket):
        self._config = config
        self._bucket = bucket
        links = config.links
        super().__init__({"waits": In(links), "kinds": In(FlitKind).array(links), "passes": Out(links)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bucket = bucket = self._bucket
        ports = range(self._config.links)
        turn, before = Signal(range(len(ports))), Signal(range(len(ports)))
        next_in_turn(m, "comb", turn, self.waits, before)
        with m.Switch(turn):
            for port in ports:
                with m.Case(port):
                    m.d.comb += bucket.kind.eq(self.kinds[port])
        m.d.comb += [
            bucket.taken.eq(self.waits.any() & bucket.open),
            self.passes.eq(Cat(bucket.taken & (turn == port) for port in ports)),
        ]
        with m.If(bucket.taken):
            m.d.sync += before.eq(turn)
        return m
