"""One memory of packet slots: packet buffer, multicast buffer and retry buffer in one.

A slot is filled once and is free again when the last of its sends has been released; nothing is copied for a multicast
or for a packet that is sent again. Slots leave a free list, because ports acknowledge in any order.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..geometry import INTERLEAVE_SECTORS
from ..messages import Messages
from ..primitives.memory_watch import watch
from ..primitives.places import FreeList
from .parameters import LinkParameters
from .wire import arrival_layout, count_bits, packet_layout, routes_layout


class SlotBank(wiring.Component):
    """`slots` slots of 8 sectors and their packets' attributes.

    So that a port which stands cannot keep all slots, each port may always have `own` slots. A slot is charged to the
    own slots of all ports it goes to, or, once for each of its sends, to the rest that all ports share (also when its
    sends are more than that and nothing is charged to the rest). A slot whose ports each have a slot of their own
    left is thus given out whatever the other ports do.

    Ports: `room`, `slot`: a slot may be had for a packet of `routes`, and its number, both stable until `close`; with
    `close`, only with `room`: the slot is taken, `packet` its attributes; `arrivals`: sectors, never refused, to the
    slot offered or those taken; `asked`, `asked_length`, `whole`: sectors 0 to `asked_length` of a slot have arrived,
    those that arrive in this cycle included; `forget`: that slot may be filled anew from when it is free (these four
    not in the bank of the stores, whose packets are closed whole); `read`, `read_slot`, `read_place`: a sector, and the
    attributes, in the next cycle, and until the next `read`; `release`, `release_slot`, `release_port`: a send of a
    slot is over; `empty`: all slots are free; `freed`: a slot becomes so; with protection of memories `uses`: the
    attributes that are read are those of a filled slot, and `queues_wrong`, a pulse: these, or a free slot that was
    taken, had a wrong bit.
    """

    def __init__(self, parameters: LinkParameters, bank: int):
        self._parameters = parameters
        self._slots = slots = parameters.packet_slots[bank]
        self._own = parameters.own_slots(bank)
        self._shared = slots - self._own * parameters.links
        slot = parameters.slot_bits
        # The last bank is that of the stores, whose packets are whole when they are closed.
        self._asked_for = bank != parameters.slot_banks - 1
        questions = {"asked": In(slot), "asked_length": In(3), "whole": Out(1), "forget": In(1)}
        super().__init__(
            {
                "routes": In(routes_layout(parameters)),
                "room": Out(1),
                "slot": Out(slot),
                "close": In(1),
                "packet": In(packet_layout(parameters)),
                "arrival": In(arrival_layout(parameters)),
                **(questions if self._asked_for else {}),
                "read": In(1),
                "read_slot": In(slot),
                "read_place": In(3),
                "sector": Out(Messages(parameters).sector),
                "attributes": Out(packet_layout(parameters)),
                "release": In(1),
                "release_slot": In(slot),
                "release_port": In(range(parameters.links) if parameters.links > 1 else 1),
                "freed": Out(1),
                "empty": Out(1),
                **({"uses": In(1), "queues_wrong": Out(1)} if parameters.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._memories(m)
        if self._asked_for:
            self._arrived(m)
        free = self._charge(m)
        self._release(m)
        if self._parameters.protects_memories:
            m.d.comb += self.queues_wrong.eq(free.wrong | m.submodules.packet_watch.wrong)
        return m

    def _memories(self, m: Module) -> None:
        sector = Messages(self._parameters).sector
        m.submodules.sectors = sectors = Memory(shape=sector, depth=self._slots * INTERLEAVE_SECTORS, init=[])
        m.submodules.packets = packets = Memory(
            shape=packet_layout(self._parameters), depth=max(2, self._slots), init=[]
        )
        write, read = sectors.write_port(), sectors.read_port()
        packet_write, packet_read = packets.write_port(), packets.read_port()
        m.d.comb += [
            write.addr.eq(Cat(self.arrival.index, self.arrival.slot)),
            write.data.eq(self.arrival.data),
            write.en.eq(self.arrival.valid),
            read.addr.eq(Cat(self.read_place, self.read_slot)),
            read.en.eq(self.read),
            self.sector.eq(read.data),
            packet_write.addr.eq(self.slot),
            packet_write.data.eq(self.packet),
            packet_write.en.eq(self.close),
            packet_read.addr.eq(self.read_slot),
            packet_read.en.eq(self.read),
            self.attributes.eq(packet_read.data),
        ]
        if self._parameters.protects_memories:
            watch(m, "packet_watch", packet_write, (packet_read, self.read & self.uses))

    def _arrived(self, m: Module) -> None:
        """A bit for each place whose sector is there."""
        arrived = Signal(self._slots * INTERLEAVE_SECTORS)
        wanted = Signal(INTERLEAVE_SECTORS)
        present = Signal(INTERLEAVE_SECTORS)
        comes = Signal(INTERLEAVE_SECTORS)
        m.d.comb += [
            wanted.eq((Const(2, 9) << self.asked_length) - 1),
            comes.eq(Mux(self.arrival.valid & (self.arrival.slot == self.asked), Const(1, 8) << self.arrival.index, 0)),
            present.eq(arrived.word_select(self.asked, INTERLEAVE_SECTORS) | comes),
            self.whole.eq((present & wanted) == wanted),
        ]
        with m.If(self.arrival.valid):
            m.d.sync += arrived.bit_select(Cat(self.arrival.index, self.arrival.slot), 1).eq(1)
        with m.If(self.forget):
            m.d.sync += arrived.word_select(self.asked, INTERLEAVE_SECTORS).eq(0)

    def _charge(self, m: Module) -> FreeList:
        """Decide whether a slot may be had; returns the free ones."""
        links, own = self._parameters.links, self._own
        count = count_bits(self._parameters)
        sends, ports = self.routes.sends, self.routes.ports
        m.submodules.free = free = FreeList(self._slots, checked=self._parameters.protects_memories)
        shared_used = Signal(range(max(self._shared, (1 << count) - 1) + 1))
        shared = Signal(self._slots)
        own_room = Signal()
        full = Signal(links)
        charge_own = Signal()
        charge_shared = Signal()
        releases_shared = Signal()
        m.d.comb += [
            own_room.eq(self.routes.single & ~(ports & full).any()),
            self.room.eq(own_room | (shared_used == 0) | (shared_used + sends <= self._shared)),
            self.slot.eq(free.index),
            charge_own.eq(self.close & own_room),
            charge_shared.eq(self.close & ~own_room),
            free.take.eq(self.close),
            free.give.eq(self.freed),
            free.given.eq(self.release_slot),
            releases_shared.eq(self.release & shared.bit_select(self.release_slot, 1)),
        ]
        for port in range(links):
            used = Signal(range(own + 1), name=f"own_used_{port}") if own else Const(0, 1)
            m.d.comb += full[port].eq(used == own)
            if own:
                takes = charge_own & ports[port]
                gives = self.release & ~releases_shared & (self.release_port == port)
                with m.If(takes & ~gives):
                    m.d.sync += used.eq(used + 1)
                with m.If(~takes & gives):
                    m.d.sync += used.eq(used - 1)
        # Whether one is charged is known late, so both sums are ready.
        more, same = Signal.like(shared_used), Signal.like(shared_used)
        m.d.comb += [more.eq(shared_used + sends - releases_shared), same.eq(shared_used - releases_shared)]
        m.d.sync += shared_used.eq(Mux(charge_shared, more, same))
        with m.If(self.close):
            m.d.sync += shared.bit_select(self.slot, 1).eq(charge_shared)
        used_slots = Signal(range(self._slots + 1))
        with m.If(self.close != self.freed):
            m.d.sync += used_slots.eq(Mux(self.close, used_slots + 1, used_slots - 1))
        m.d.comb += self.empty.eq(used_slots == 0)
        return free

    def _release(self, m: Module) -> None:
        """Count the sends of each slot; the last one frees it."""
        count = count_bits(self._parameters)
        left = Signal(self._slots * count)
        now = Signal(count)
        m.d.comb += [
            now.eq(left.word_select(self.release_slot, count)),
            self.freed.eq(self.release & (now == 1)),
        ]
        with m.If(self.release):
            m.d.sync += left.word_select(self.release_slot, count).eq(now - 1)
        with m.If(self.close):
            m.d.sync += left.word_select(self.slot, count).eq(self.routes.sends)
