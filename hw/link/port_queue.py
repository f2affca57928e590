"""Queue of one link port: what is to be sent, what is under way, and what is sent again, in one memory.

Pointers count modulo 2**sequence_bits and name places by their low bits, so the sequence number of a packet is its
place and needs no memory. In order: `oldest` <= `acknowledged` <= `left` <= `sent` <= `written`. `next_place` runs from
`acknowledged` to `written` and goes back when packets have to be sent again; `sent` is the furthest it ever was, and
the packets before `left` have been sent to their ends.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..primitives.memory_watch import watch
from .parameters import LinkParameters
from .wire import descriptor_layout


class PortQueue(wiring.Component):
    """Descriptors of one port, each released once: when it is acknowledged, or discarded unsent.

    Ports: `push`, `descriptor`: always taken (there are no more descriptors than places); `head_valid`, `head`,
    `sequence_number`, `fresh`: the packet to be sent, and whether no flit of it was sent in this session; `started`:
    its first flit leaves; `done`: its last flit leaves, the next packet is at the head in the next cycle; `leaves`: and
    it is the first time in this session; `all_left`: there was one for every packet; `acknowledge`, `until`: packets
    before `until` have arrived; `back`: send everything anew that is not acknowledged; `cut`: the session is over, so
    nothing that is not acknowledged has been sent; `discard`: take packets that were never sent out of the queue, the
    last first; `dropped`: the head goes though not done; `release`, `released`, `unsent`: a descriptor is over, taken
    with `release_taken`; `unacknowledged`: something sent was not; `first`: the first place not acknowledged; `empty`;
    with protection of memories `wrong`, a pulse: a descriptor was read with a wrong bit. Latency: `push` to `head` 1
    cycle.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        descriptor = descriptor_layout(parameters)
        sequence = parameters.link_sequence_bits
        super().__init__(
            {
                "push": In(1),
                "descriptor": In(descriptor),
                "head_valid": Out(1),
                "head": Out(descriptor),
                "sequence_number": Out(sequence),
                "fresh": Out(1),
                "started": In(1),
                "done": In(1),
                "leaves": Out(1),
                "all_left": Out(1),
                "acknowledge": In(1),
                "until": In(sequence),
                "back": In(1),
                "cut": In(1),
                "discard": In(1),
                "dropped": Out(1),
                "release": Out(1),
                "released": Out(descriptor),
                "unsent": Out(1),
                "release_taken": In(1),
                "unacknowledged": Out(1),
                "first": Out(sequence),
                "sent": Out(sequence),
                "empty": Out(1),
                **({"wrong": Out(1)} if parameters.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._parameters.port_queue_depth
        bits = self._parameters.link_sequence_bits
        places = max(2, depth).bit_length() - 1
        m.submodules.memory = memory = Memory(shape=descriptor_layout(self._parameters), depth=max(2, depth), init=[])
        write = memory.write_port()
        next_read, release_read = memory.read_port(domain="comb"), memory.read_port(domain="comb")

        written = Signal(bits)
        next_place = Signal(bits)
        acknowledged = Signal(bits)
        left = Signal(bits)
        oldest = Signal(bits)
        load = Signal()
        take_back = Signal()
        m.d.comb += [
            write.addr.eq(written[:places]),
            write.data.eq(self.descriptor),
            write.en.eq(self.push),
            next_read.addr.eq(next_place[:places]),
            self.fresh.eq(self.sequence_number == self.sent),
            self.unacknowledged.eq(acknowledged != self.sent),
            self.first.eq(acknowledged),
            self.leaves.eq(self.done & (self.sequence_number == left)),
            self.all_left.eq(left == written),
            self.empty.eq(oldest == written),
        ]

        # Discarded is from the end, so the places that were sent keep their numbers.
        fresh_head = Signal()
        m.d.comb += [
            fresh_head.eq(self.head_valid & self.fresh),
            self.unsent.eq(oldest == acknowledged),
            take_back.eq(self.discard & self.unsent & ~self.push & (written != self.sent) & ~fresh_head & ~self.cut),
            self.release.eq(~self.unsent | take_back),
            release_read.addr.eq(Mux(self.unsent, written - 1, oldest)[:places]),
            self.released.eq(release_read.data),
        ]
        with m.If(self.push):
            m.d.sync += written.eq(written + 1)
        with m.Elif(take_back & self.release_taken):
            m.d.sync += written.eq(written - 1)
        with m.If(~self.unsent & self.release_taken):
            m.d.sync += oldest.eq(oldest + 1)

        # What was acknowledged while it was sent again need not be sent to its end.
        ahead = Signal(bits)
        overtaken = Signal()
        confirmed = Signal(bits)
        m.d.comb += [
            confirmed.eq(Mux(self.acknowledge, self.until, acknowledged)),
            ahead.eq(next_place - self.until),
            overtaken.eq(self.acknowledge & (ahead[-1] | ((ahead == 0) & self.head_valid))),
            self.dropped.eq(self.head_valid & (self.cut | self.back | overtaken | (self.discard & self.fresh))),
            load.eq((~self.head_valid | self.done) & ((next_place != written) | self.push)),
        ]
        if self._parameters.protects_memories:
            loads = load & (next_place != written)
            uses = (next_read, loads), (release_read, self.release & self.release_taken)
            m.d.comb += self.wrong.eq(watch(m, "memory_watch", write, *uses).wrong)
        with m.If(self.started & self.fresh):
            m.d.sync += self.sent.eq(self.sent + 1)
        with m.If(self.cut):
            m.d.sync += left.eq(confirmed)
        with m.Elif(self.leaves):
            m.d.sync += left.eq(left + 1)
        m.d.sync += acknowledged.eq(confirmed)
        with m.If(self.cut):
            m.d.sync += [self.head_valid.eq(0), next_place.eq(confirmed), self.sent.eq(confirmed)]
        with m.Elif(self.back):
            m.d.sync += [self.head_valid.eq(0), next_place.eq(confirmed)]
        with m.Elif(overtaken):
            m.d.sync += [self.head_valid.eq(0), next_place.eq(self.until)]
        with m.Elif(fresh_head & self.discard):
            m.d.sync += [self.head_valid.eq(0), next_place.eq(self.sequence_number)]
        with m.Elif(load & ~(self.discard & (next_place == self.sent))):
            m.d.sync += [
                self.head_valid.eq(1),
                self.head.eq(Mux(next_place == written, self.descriptor, next_read.data)),
                self.sequence_number.eq(next_place),
                next_place.eq(next_place + 1),
            ]
        with m.Elif(self.done):
            m.d.sync += self.head_valid.eq(0)
        return m
