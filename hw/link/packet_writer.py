"""From an arrived packet to writes: buffers, the checks of its header, one write per sector.

It waits for memory only. What is judged here is a whole, clean packet, so a fault is the peer's doing, not the wire's.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory, ReadPort
from amaranth.lib.wiring import In, Out

from ..geometry import INTERLEAVE_SECTORS
from ..memory_window import WindowCheck, in_lane
from ..message_parameters import ChannelParameters
from ..messages import Fault, Messages
from ..primitives.memory_watch import watch
from ..range_table import Control, RangeMatch, RangeTable, Word, range_write
from ..word_table import mask_of
from .parameters import LinkParameters
from .wire import header_layout

_KEPT = ("va", "wg", "wf", "access", "alu", "dtype", "traffic_class", "epoch", "length", "mask")
_GIVEN = ("access", "alu", "dtype", "first_touch", "tracked", "traffic_class", "range", "wg", "wf", "epoch", "va")


def buffered_header(config: ChannelParameters) -> data.StructLayout:
    """What is kept of a packet's header until its writes are done."""
    header = header_layout(config)
    return data.StructLayout(
        {
            **{name: header[name].shape for name in _KEPT},
            "range": unsigned(config.range_bits),
            "first_touch": unsigned(1),
            "tracked": unsigned(1),
        }
    )


PeerCheck = data.StructLayout({"rank": unsigned(6), "reserved": unsigned(1), "checked": unsigned(1)})
"""Whose packets a port takes: those of `rank`, or with `checked` 0, behind a switch, of any rank."""


class PacketWriter(wiring.Component):
    """Checks the packets of one port and writes them.

    A packet is refused whole and `fault` reported when its sectors are not as many as it says (CRC), it is not for
    `rank` (DESTINATION) or does not come from its `peer` (SOURCE),
    this node is not armed or the epoch differs (EPOCH), or its first and last sector are not in one range, or
    not in the channels of this lane (OUTSIDE);
    the first of these is reported. Its buffer is free at once.

    Ports: `lane`: number of this lane, if there are several; `ranges`: programming bus; `window`: what is not in it is
    in no range; `looks`, `header`, `sector`, `place`, `buffer`, `complete`: from
    :class:`hw.link.port_receiver.PortReceiver`, `data` of the flit; `freed`: the oldest buffer is free again;
    `requests`: STORE or UPDATE as the header says, `first_touch`, `tracked` from the range, in the order received;
    `fault_valid`, `fault`: one cycle; `received`: a packet was accepted; `writing`: an accepted packet has requests
    that were not taken; `idle`; with protection of memories `tables_wrong`, a pulse: a word of the range table by which
    a header was judged in the cycle before had a wrong bit, and `queue_wrong`: a header was kept with a wrong bit.
    Latency: `complete` to the first request 3 cycles. Rate: one sector a cycle, no bubble between packets.
    """

    def __init__(self, parameters: LinkParameters):
        self._parameters = parameters
        config = parameters
        messages = Messages(config)
        super().__init__(
            {
                **({"lane": In(parameters.lane_bits)} if parameters.lanes > 1 else {}),
                "ranges": In(range_write(config)),
                "window": In(WindowCheck),
                "rank": In(6),
                "peer": In(PeerCheck),
                "epoch": In(messages.epoch),
                "armed": In(1),
                "looks": In(1),
                "header": In(1),
                "sector": In(1),
                "place": In(3),
                "buffer": In(max(1, (parameters.link_receive_packets - 1).bit_length())),
                "complete": In(1),
                "data": In(messages.sector),
                "freed": Out(1),
                "requests": Out(stream.Signature(messages.memory_request)),
                "fault_valid": Out(1),
                "fault": Out(messages.fault_record),
                "received": Out(1),
                "writing": Out(1),
                "idle": Out(1),
                **({"tables_wrong": Out(1), "queue_wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._parameters
        packets = self._parameters.link_receive_packets
        meta = buffered_header(config)
        m.submodules.sectors = sectors = Memory(
            shape=Messages(config).sector, depth=packets * INTERLEAVE_SECTORS, init=[]
        )
        m.submodules.headers = headers = Memory(shape=meta, depth=packets, init=[])
        sector_write, meta_write = sectors.write_port(), headers.write_port()
        sector_read, meta_read = sectors.read_port(), headers.read_port()
        header = Signal(header_layout(config))
        with m.If(self.header):
            m.d.sync += header.eq(self.data[: header_layout(config).size])

        stale = Signal()
        m.d.comb += stale.eq(~self.armed | (header.epoch != self.epoch))
        bad, fault, index, checking, bounds_wrong = self._checks(m, header, stale)
        m.submodules.table = table = RangeTable(
            config, [Word.CONTROL], {Word.CONTROL: mask_of(Control, "first_touch", "tracked")}
        )
        accept = Signal()
        refuse = Signal()
        m.d.comb += [
            sector_write.addr.eq(Cat(self.place, self.buffer) if packets > 1 else self.place),
            sector_write.data.eq(self.data),
            sector_write.en.eq(self.sector),
            refuse.eq(self.complete & (bad | stale | (self.place != header.length))),
            accept.eq(self.complete & ~refuse),
            self.received.eq(accept),
            self.fault_valid.eq(refuse),
            self.fault.link.eq(1),
            self.fault.access.eq(header.access),
            self.fault.va.eq(header.va),
            self.fault.wg.eq(header.wg),
            self.fault.wf.eq(header.wf),
            table.write.eq(self.ranges),
            table.index.eq(index),
            meta_write.en.eq(accept),
            meta_write.addr.eq(self.buffer),
            *(meta_write.data[name].eq(header[name]) for name in _KEPT),
            meta_write.data.range.eq(index),
            meta_write.data.first_touch.eq(table.control.first_touch),
            meta_write.data.tracked.eq(table.control.tracked),
        ]
        if config.protects_memories:
            m.d.comb += [table.used.eq(accept), self.tables_wrong.eq(bounds_wrong | table.wrong)]
        with m.If(self.place != header.length):
            m.d.comb += self.fault.fault.eq(Fault.CRC)
        with m.Elif(bad):
            m.d.comb += self.fault.fault.eq(fault)
        with m.Else():
            m.d.comb += self.fault.fault.eq(Fault.EPOCH)
        draining, fetch = self._drain(m, accept, refuse, meta, meta_read, sector_read)
        if config.protects_memories:
            m.d.comb += self.queue_wrong.eq(watch(m, "header_watch", meta_write, (meta_read, fetch)).wrong)
        m.d.comb += self.idle.eq(~draining & ~checking)
        return m

    def _checks(self, m: Module, header: data.View, stale: Signal) -> tuple[Signal, Signal, Signal, Signal, Signal]:
        """Judge the header in the two cycles after it came; the results hold from then on to the next header. Those of
        the first cycle are enough for a packet of one sector. A header whose epoch was over for one cycle is never good
        again: with that number another epoch may run, on other ranges. Returned too: a look-up met a wrong bit."""
        m.submodules.match = match = RangeMatch(self._parameters)
        first = Signal()
        second = Signal()
        bad = Signal()
        fault = Signal(Fault)
        index = Signal(self._parameters.range_bits)
        bad_before = Signal()
        fault_before = Signal(Fault)
        index_before = Signal.like(index)
        last_va = Signal(header.va.shape())
        wraps = Signal()
        """The packet goes over the end of the address space."""
        arriving = header_layout(self._parameters)(self.data[: header_layout(self._parameters).size])
        m.d.sync += [
            first.eq(self.header),
            second.eq(first & ~self.looks),
            bad_before.eq(bad | stale),
            fault_before.eq(Mux(bad, fault, Fault.EPOCH)),
            index_before.eq(index),
        ]
        m.d.comb += [
            match.write.eq(self.ranges),
            match.window.eq(self.window),
            # Whether the header is taken is known too late to choose the address by it.
            match.look_up.eq(1),
            match.va.eq(Mux(self.looks, arriving.va, last_va)),
            bad.eq(bad_before),
            fault.eq(fault_before),
            index.eq(index_before),
        ]
        with m.If(self.looks):
            m.d.sync += Cat(last_va, wraps).eq(arriving.va + arriving.length)
        with m.If(first):
            m.d.comb += [index.eq(match.index), bad.eq(1)]
            with m.If(header.destination != self.rank):
                m.d.comb += fault.eq(Fault.DESTINATION)
            with m.Elif(self.peer.checked & (header.source != self.peer.rank)):
                m.d.comb += fault.eq(Fault.SOURCE)
            with m.Elif(stale):
                m.d.comb += fault.eq(Fault.EPOCH)
            with m.Elif(~match.hit | ~self._is_here(header.va)):
                m.d.comb += fault.eq(Fault.OUTSIDE)
            with m.Else():
                m.d.comb += bad.eq(0)
        in_one = match.hit & (match.index == index_before) & self._is_here(last_va)
        with m.If(second & ~bad_before & (wraps | ~in_one)):
            m.d.comb += [bad.eq(1), fault.eq(Fault.OUTSIDE)]
        bounds_wrong = Signal()
        if self._parameters.protects_memories:
            m.d.sync += bounds_wrong.eq((first | second) & match.wrong)
        return bad, fault, index, first, bounds_wrong

    def _is_here(self, va: Value) -> Value:
        """Whether a sector is in the channels of this lane."""
        return in_lane(self._parameters, self.lane, va) if self._parameters.lanes > 1 else Const(1)

    def _drain(
        self,
        m: Module,
        accept: Signal,
        refuse: Signal,
        meta: data.StructLayout,
        meta_read: ReadPort,
        sector_read: ReadPort,
    ) -> tuple[Signal, Signal]:
        """Take the accepted packets out of their buffers, one sector a cycle; a refused packet leaves its buffer in
        turn, so that buffers become free in the order in which they were filled. Returns whether one is there, and
        whether a header is read."""
        packets = self._parameters.link_receive_packets
        slots = len(self.buffer)
        stored = Signal(range(packets + 1))
        refused = Signal(packets)
        fetch_slot = Signal(slots)
        fetched_slot = Signal(slots)
        fetched = Signal()
        fetch = Signal()
        skip = Signal()
        pop = Signal()
        current = Signal(meta)
        current_slot = Signal(slots)
        active = Signal()
        sector = Signal(3)
        last = Signal()
        taken = Signal()
        load = Signal()
        m.d.comb += [
            last.eq(sector == current.length),
            taken.eq(active & self.requests.ready),
            load.eq(fetched & (~active | (taken & last))),
            skip.eq((stored != 0) & refused.bit_select(fetch_slot, 1) & ~fetched & ~active),
            fetch.eq((stored != 0) & ~refused.bit_select(fetch_slot, 1) & (~fetched | load)),
            pop.eq(fetch | skip),
            meta_read.addr.eq(fetch_slot),
            meta_read.en.eq(fetch),
            sector_read.en.eq(load | (taken & ~last)),
            sector_read.addr.eq(
                Mux(load, Cat(0, 0, 0, fetched_slot), Cat((sector + 1)[:3], current_slot))[: len(sector_read.addr)]
            ),
        ]
        with m.If(self.complete):
            m.d.sync += refused.bit_select(self.buffer, 1).eq(refuse)
        with m.If(self.complete != pop):
            m.d.sync += stored.eq(Mux(self.complete, stored + 1, stored - 1))
        with m.If(self.complete & (stored == 0)):
            # The receiver may begin a session anywhere in the ring of buffers.
            m.d.sync += fetch_slot.eq(self.buffer)
        with m.Elif(pop):
            m.d.sync += fetch_slot.eq((fetch_slot + 1)[:slots] if packets > 1 else 0)
        with m.If(fetch):
            m.d.sync += [fetched.eq(1), fetched_slot.eq(fetch_slot)]
        with m.Elif(load):
            m.d.sync += fetched.eq(0)
        with m.If(load):
            m.d.sync += [active.eq(1), current.eq(meta_read.data), current_slot.eq(fetched_slot), sector.eq(0)]
        with m.Elif(taken):
            m.d.sync += [active.eq(~last), current.va.eq(current.va + 1), sector.eq(sector + 1)]

        request = self.requests.payload
        m.d.comb += [
            self.requests.valid.eq(active),
            *(request[name].eq(current[name]) for name in _GIVEN),
            request.mask.eq(Mux(last, current.mask, 0xFFFFFFFF)),
            request.data.eq(sector_read.data),
            self.freed.eq((taken & last) | skip),
        ]
        unwritten = Signal(range(packets + 1))
        """Accepted packets whose last request was not taken."""
        m.d.comb += self.writing.eq(accept | (unwritten != 0))
        with m.If(accept != (taken & last)):
            m.d.sync += unwritten.eq(Mux(accept, unwritten + 1, unwritten - 1))
        draining = Signal()
        m.d.comb += draining.eq(active | fetched | (stored != 0))
        return draining, fetch
