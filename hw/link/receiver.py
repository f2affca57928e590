"""Receiving side of one link port: packet buffers, header checks, writes to the communication stream.

Ingress never waits: credits guarantee a free buffer to every packet, and the writes wait only on the memory.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory, ReadPort
from amaranth.lib.wiring import In, Out

from ..geometry import INTERLEAVE_SECTORS
from ..messages import HEADER_CRC_BITS, Fault, Messages
from ..range_table import RangeMatch, RangeTable, RangeWrite, Word
from .header_crc import header_bits, header_crc
from .parameters import LinkParameters

_KEPT = ("va", "wg", "wf", "access", "alu", "dtype", "traffic_class", "epoch", "length", "mask")


def buffered_header(config: LinkParameters) -> data.StructLayout:
    """What is kept of an accepted packet's header until its writes are done."""
    header = Messages(config).link_header
    return data.StructLayout(
        {
            **{name: header[name].shape for name in _KEPT},
            "range": unsigned(config.range_bits),
            "first_touch": unsigned(1),
            "tracked": unsigned(1),
        }
    )


class Receiver(wiring.Component):
    """Buffers packets, checks their headers and turns them into one write per sector.

    A packet is dropped whole, its credit returned and `fault` reported when its check or its length is wrong (CRC),
    it is for another rank (DESTINATION), this node is not armed or the epoch differs (EPOCH), or its first and last
    sector are not in one range (OUTSIDE); the first of these is reported. So is one that was arriving when the node was
    disarmed (EPOCH), even if it ends in another epoch.

    Ports: `rx`, always ready; `control`: credits and, after `arm`, the grant of `epoch`; `requests`: STORE or UPDATE as
    the header says, `first_touch`, `tracked` from the range, in the order received; `fault_valid`, `fault`: one cycle;
    `received`: a packet was accepted; `idle`; `writing`: a packet was accepted, or may be in this cycle, whose writes
    have not all been taken; `wake`: see :mod:`hw.primitives.clock_enable`.

    Latency: last flit to first request 4 cycles. Rate: one sector a cycle, no bubble between packets. Reset frees all
    buffers; the transmitter at the other end starts with as many credits, so both ends of a link are reset together.
    """

    def __init__(self, config: LinkParameters):
        self._config = config
        self._messages = messages = Messages(config)
        super().__init__(
            {
                "ranges": In(RangeWrite),
                "rank": In(6),
                "epoch": In(messages.epoch),
                "armed": In(1),
                "arm": In(1),
                "rx": In(stream.Signature(messages.link_flit)),
                "control": Out(messages.link_control),
                "requests": Out(stream.Signature(messages.memory_request)),
                "fault_valid": Out(1),
                "fault": Out(messages.fault_record),
                "received": Out(1),
                "idle": Out(1),
                "writing": Out(1),
                "wake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, messages = self._config, self._messages
        packets = config.link_receive_packets
        bits = (packets - 1).bit_length()

        meta = buffered_header(config)
        m.submodules.sectors = sectors = Memory(shape=unsigned(256), depth=packets * INTERLEAVE_SECTORS, init=[])
        m.submodules.headers = headers = Memory(shape=meta, depth=packets, init=[])
        sector_write, meta_write = sectors.write_port(), headers.write_port()
        sector_read, meta_read = sectors.read_port(), headers.read_port()

        tail = Signal(bits)
        header = Signal(messages.link_header)
        receiving = Signal()
        place = Signal(3)
        ending = Signal()
        end_place = Signal(3)
        flit = self.rx.payload
        m.d.comb += [
            self.rx.ready.eq(1),
            sector_write.addr.eq(Cat(place, tail)),
            sector_write.data.eq(flit.data),
            sector_write.en.eq(self.rx.valid & ~flit.header),
        ]
        m.d.sync += ending.eq(self.rx.valid & ~flit.header & flit.last)
        with m.If(self.rx.valid):
            m.d.sync += receiving.eq(~flit.last)
            with m.If(flit.header):
                m.d.sync += [header.eq(flit.data[: messages.link_header.size]), place.eq(0)]
            with m.Else():
                m.d.sync += [place.eq(place + 1), end_place.eq(place)]

        bad, fault, index, checking = self._checks(m, header)

        drop = Signal()
        accept = Signal()
        wrong_length = Signal()
        m.submodules.table = table = RangeTable(config, [Word.CONTROL])
        m.d.comb += [
            wrong_length.eq(end_place != header.length),
            drop.eq(ending & (bad | wrong_length)),
            accept.eq(ending & ~(bad | wrong_length)),
            self.received.eq(accept),
            self.fault_valid.eq(drop),
            self.fault.fault.eq(fault),
            self.fault.link.eq(1),
            self.fault.access.eq(header.access),
            self.fault.va.eq(header.va),
            self.fault.wg.eq(header.wg),
            self.fault.wf.eq(header.wf),
            table.write.eq(self.ranges),
            table.index.eq(index),
            meta_write.en.eq(accept),
            meta_write.addr.eq(tail),
            *(meta_write.data[name].eq(header[name]) for name in _KEPT),
            meta_write.data.range.eq(index),
            meta_write.data.first_touch.eq(table.control.first_touch),
            meta_write.data.tracked.eq(table.control.tracked),
        ]
        with m.If(wrong_length):
            m.d.comb += self.fault.fault.eq(Fault.CRC)
        with m.If(accept):
            m.d.sync += tail.eq(tail + 1)

        freed, draining = self._drain(m, accept, meta, meta_read, sector_read)
        answering = self._control(m, drop, freed)
        comes = self.rx.valid | self.arm | self.ranges.valid
        m.d.comb += [
            self.idle.eq(~receiving & ~ending & ~draining),
            self.writing.eq(ending | draining),
            self.wake.eq(comes | ~self.armed | self.writing | checking | answering),
        ]
        return m

    def _checks(self, m: Module, header: data.View) -> tuple[Signal, Signal, Signal, Value]:
        """Judge a header in the two cycles after it came in; the results hold from then on to the next header. What
        takes long, the comparison with the ranges and the parities of the crc, is done as it comes in."""
        messages = self._messages
        bits = header_bits(messages)
        m.submodules.match = match = RangeMatch(self._config)
        comes = Signal()
        arriving = messages.link_header(self.rx.payload.data[: messages.link_header.size])
        crc = Signal(HEADER_CRC_BITS)
        check_first = Signal()
        check_last = Signal()
        last_va = Signal(messages.va)
        bad = Signal()
        fault = Signal(Fault)
        index = Signal(self._config.range_bits)
        m.d.sync += [check_first.eq(comes), check_last.eq(check_first)]
        m.d.comb += [
            comes.eq(self.rx.valid & self.rx.payload.header),
            match.write.eq(self.ranges),
            match.look_up.eq(comes | check_first),
            match.va.eq(Mux(check_first, last_va, arriving.va)),
        ]
        with m.If(comes):
            m.d.sync += [
                last_va.eq(arriving.va + arriving.length),
                crc.eq(header_crc(self.rx.payload.data[:bits])),
            ]
        with m.If(check_first):
            m.d.sync += [index.eq(match.index), bad.eq(1)]
            with m.If(crc != header.crc):
                m.d.sync += fault.eq(Fault.CRC)
            with m.Elif(header.destination != self.rank):
                m.d.sync += fault.eq(Fault.DESTINATION)
            with m.Elif(~self.armed | (header.epoch != self.epoch)):
                m.d.sync += fault.eq(Fault.EPOCH)
            with m.Elif(~match.hit):
                m.d.sync += fault.eq(Fault.OUTSIDE)
            with m.Else():
                m.d.sync += bad.eq(0)
        with m.If(~self.armed & ~check_first & ~bad):
            m.d.sync += [bad.eq(1), fault.eq(Fault.EPOCH)]
        with m.If(check_last & ~bad & ~(match.hit & (match.index == index))):
            m.d.sync += [bad.eq(1), fault.eq(Fault.OUTSIDE)]
        return bad, fault, index, check_first | check_last

    def _drain(
        self, m: Module, accept: Signal, meta: data.StructLayout, meta_read: ReadPort, sector_read: ReadPort
    ) -> tuple[Signal, Signal]:
        """Take the accepted packets out of their buffers, one sector a cycle."""
        packets = self._config.link_receive_packets
        slots = (packets - 1).bit_length()
        stored = Signal(range(packets + 1))
        fetch_slot = Signal(slots)
        fetched_slot = Signal(slots)
        fetched = Signal()
        fetch = Signal()
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
            fetch.eq((stored != 0) & (~fetched | load)),
            meta_read.addr.eq(fetch_slot),
            meta_read.en.eq(fetch),
            sector_read.en.eq(load | (taken & ~last)),
            sector_read.addr.eq(Mux(load, Cat(0, 0, 0, fetched_slot), Cat((sector + 1)[:3], current_slot))),
        ]
        with m.If(accept != fetch):
            m.d.sync += stored.eq(Mux(accept, stored + 1, stored - 1))
        with m.If(fetch):
            m.d.sync += [fetched.eq(1), fetched_slot.eq(fetch_slot), fetch_slot.eq(fetch_slot + 1)]
        with m.Elif(load):
            m.d.sync += fetched.eq(0)
        with m.If(load):
            m.d.sync += [active.eq(1), current.eq(meta_read.data), current_slot.eq(fetched_slot), sector.eq(0)]
        with m.Elif(taken):
            m.d.sync += [active.eq(~last), current.va.eq(current.va + 1), sector.eq(sector + 1)]

        request = self.requests.payload
        m.d.comb += [
            self.requests.valid.eq(active),
            *(
                request[name].eq(current[name])
                for name in (
                    "access",
                    "alu",
                    "dtype",
                    "first_touch",
                    "tracked",
                    "traffic_class",
                    "range",
                    "wg",
                    "wf",
                    "epoch",
                    "va",
                )
            ),
            request.mask.eq(Mux(last, current.mask, 0xFFFFFFFF)),
            request.data.eq(sector_read.data),
        ]
        freed = Signal()
        draining = Signal()
        m.d.comb += [freed.eq(taken & last), draining.eq(active | fetched | (stored != 0))]
        return freed, draining

    def _control(self, m: Module, drop: Signal, freed: Signal) -> Value:
        """Return a credit per buffer freed or never used, one a cycle, and pass on the grant."""
        owed = Signal(range(self._config.link_receive_packets + 1))
        m.d.sync += [self.control.credit.eq(0), self.control.grant.eq(self.arm)]
        with m.If(self.arm):
            m.d.sync += self.control.epoch.eq(self.epoch)
        with m.If(drop | freed | (owed != 0)):
            m.d.sync += [self.control.credit.eq(1), owed.eq(owed + drop + freed - 1)]
        return (owed != 0) | self.control.credit | self.control.grant
