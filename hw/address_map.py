"""Address map: decides where an access of the GPU goes, from the range table (T3 section 4.4, Figs 11-12).

`remote_map` and `dma_map` of the paper are range entries here. An access that no rule allows is refused: it never
reaches memory, its first unreported occurrence leaves a fault record, and a refused read is answered with `error`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.hdl import Value, signed, unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory, ReadPort, WritePort
from amaranth.lib.wiring import In, Out

from .counters import total
from .memory_window import WindowCheck
from .message_parameters import ChannelParameters
from .messages import Access, DataType, Fault, Mapping, Messages, Source, with_parity
from .primitives.memory_watch import watch
from .range_table import Control, RangeMatch, RangeTable, Word, range_write
from .send_table import SendControls, send_write

SLOTS = 4
"""Accesses in flight: three pipeline stages and the cycle of the hand-over at one access a cycle."""


@dataclass(frozen=True)
class AddressMapParameters(ChannelParameters):
    """Of the address map: it compares each address with `ranges` ranges."""


ADDRESS_MAP_COUNTERS = (total("refused", "accesses of this GPU refused by the address maps", lambda refused: refused),)
"""Of `refused`, over all channels."""


class Destination(enum.Enum, shape=2):
    """Where a decided access leaves."""

    NOWHERE = 0
    LOCAL = 1
    REMOTE = 2
    REFUSED_READ = 3


def payload_layout(parameters: AddressMapParameters) -> data.StructLayout:
    """What waits in a slot while an access is decided: its `id`, `mask` and `data`."""
    return data.StructLayout({"id": 8, "mask": 32, "data": Messages(parameters).sector})


def access_layout(parameters: AddressMapParameters) -> data.StructLayout:
    """An access on its way to the decision: all but its payload, which is in `slot`; `empty`, `splits_2`, `splits_4`:
    its mask has no byte, cuts through an element of 2 bytes, of 4."""
    messages = Messages(parameters)
    return data.StructLayout(
        {
            "slot": unsigned(2),
            "access": Access,
            "traffic_class": unsigned(2),
            "wg": messages.wg,
            "wf": messages.wf,
            "va": messages.va,
            "empty": unsigned(1),
            "splits_2": unsigned(1),
            "splits_4": unsigned(1),
        }
    )


def decision_layout(parameters: AddressMapParameters) -> data.StructLayout:
    """What has been decided of an access: where it leaves, and as what."""
    messages = Messages(parameters)
    return data.StructLayout(
        {
            "destination": Destination,
            "access": Access,
            "alu": 2,
            "dtype": 2,
            "first_touch": 1,
            "tracked": 1,
            "traffic_class": 2,
            "first_send": parameters.send_bits,
            "sends": 6,
            "port": 4,
            "range": parameters.range_bits,
            "wg": messages.wg,
            "wf": messages.wf,
            "epoch": messages.epoch,
            "va": messages.va,
        }
    )


class LookedUp(NamedTuple):
    """An access in the cycle of its decision, and what the range table says of it."""

    matched: Signal
    """There is one."""
    found: data.View
    hit: Signal
    index: Signal
    control: data.View
    relative: Signal
    """Its wg, counted from the first one of the range."""
    workgroups: Signal
    wfs: Signal


class AddressMap(wiring.Component):
    """The address map of one channel.

    Ports: `ranges`, `sends`, the programming buses; `window`: what is not in it is in no range; `port_of`, the link
    port of each send; `epoch`, the armed collective's number, which an access keeps from its decision on; `armed`;
    `holding`, an access that only an armed node accepts, or a first touch, was accepted and has not left; `requests`,
    accesses of the GPU; `local`, accesses to this GPU's memory; `remote`, stores for peers; `refused_reads`, answers
    with `error` and data 0; `faults`, the record of a refused access; `refused`, one pulse per refused access; with
    protection of memories `tables_wrong`, a pulse: an access was decided by a word of a table that had a wrong bit, and
    `queues_wrong`: what goes with its data was kept with a wrong bit.

    Rules, the first that applies: no range: OUTSIDE. Read of a remote-mapped range: REMOTE_READ; any other read is
    allowed. Write to a tracked or remote-mapped range while not `armed`: NOT_ARMED, or with a workgroup or wavefront
    the range does not have: TILE. Empty mask, or an update of parts of an element (as the range says, or its first
    send): MASK.

    Timing: an access taken in cycle c is offered in c + 3, one a cycle, in order. `requests.ready` depends on registers
    only. `faults` never holds traffic back: while a record waits, further ones are lost and only counted by `refused`.
    A range or `armed` written in cycle c holds for accesses taken from c + 1 on.

    Reset: the range words must be written before the first access (see :class:`RangeTable`); the slots are read only
    where an access was kept.
    """

    def __init__(self, config: AddressMapParameters):
        self._config = config
        self._messages = messages = Messages(config)
        super().__init__(
            {
                "ranges": In(range_write(config)),
                "sends": In(send_write(config)),
                "window": In(WindowCheck),
                "port_of": In(4).array(config.sends),
                "epoch": In(messages.epoch),
                "armed": In(1),
                "holding": Out(1),
                "requests": In(stream.Signature(messages.compute_request)),
                "local": Out(stream.Signature(messages.memory_request)),
                "remote": Out(stream.Signature(messages.remote_store)),
                "refused_reads": Out(stream.Signature(messages.compute_response)),
                "faults": Out(stream.Signature(messages.fault_record)),
                "refused": Out(1),
                **({"tables_wrong": Out(1), "queues_wrong": Out(1)} if config.protects_memories else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The payload waits in a slot of a memory and only its slot number moves; decisions wait beside it.
        m.submodules.payloads = payloads = Memory(shape=payload_layout(self._config), depth=SLOTS, init=[])
        m.submodules.decisions = decisions = Memory(shape=decision_layout(self._config), depth=SLOTS, init=[])
        payload_write = payloads.write_port()
        payload_read = payloads.read_port(domain="comb")
        decision_write = decisions.write_port()
        decision_read = decisions.read_port(domain="comb")

        occupancy = Signal(range(SLOTS + 1))
        decided = Signal(range(SLOTS + 1))
        tail = Signal(range(SLOTS))
        head = Signal(range(SLOTS))
        accept = Signal()
        release = Signal()
        request = self.requests.payload
        m.d.comb += [
            self.requests.ready.eq(occupancy != SLOTS),
            accept.eq(self.requests.valid & self.requests.ready),
            payload_write.addr.eq(tail),
            payload_write.en.eq(accept),
            payload_write.data.id.eq(request.id),
            payload_write.data.mask.eq(request.mask),
            payload_write.data.data.eq(
                with_parity(request.data, request.mask) if self._config.checks_sectors else request.data
            ),
        ]
        m.d.sync += occupancy.eq(occupancy + accept - release)

        compared, taken, match = self._compare(m, accept, tail)
        looked_up, table = self._look_up(m, compared, taken, match)
        belongs, sends = self._decide(m, looked_up, decision_write)
        if self._config.protects_memories:
            # A wrong bound makes a miss as well as a hit.
            bounds_wrong = Signal()
            m.d.sync += bounds_wrong.eq(compared & match.wrong)
            payload_watch = watch(m, "payload_watch", payload_write, (payload_read, release), apart=("data",))
            decision_watch = watch(m, "decision_watch", decision_write, (decision_read, release))
            m.d.comb += [
                self.tables_wrong.eq(bounds_wrong | table.wrong | sends.wrong),
                self.queues_wrong.eq(payload_watch.wrong | decision_watch.wrong),
            ]
        self._hand_over(m, decision_read, payload_read, head, decided, release)
        m.d.sync += decided.eq(decided + looked_up.matched - release)
        with m.If(release):
            m.d.sync += head.eq(head + 1)

        # Which slots hold an access that belongs to an epoch.
        held = Signal(SLOTS)
        added = Signal(SLOTS)
        freed = Signal(SLOTS)
        m.d.comb += [
            added.eq(Mux(belongs, 1 << looked_up.found.slot, 0)),
            freed.eq(Mux(release, 1 << head, 0)),
            self.holding.eq(held.any()),
        ]
        m.d.sync += held.eq((held & ~freed) | added)
        return m

    def _compare(self, m: Module, accept: Signal, tail: Signal) -> tuple[Signal, data.View, RangeMatch]:
        """Cycle c: compare with the ranges; look at the mask."""
        request = self.requests.payload
        m.submodules.match = match = RangeMatch(self._config)
        m.d.comb += [
            match.write.eq(self.ranges),
            match.window.eq(self.window),
            match.look_up.eq(accept),
            match.va.eq(request.va),
        ]
        compared = Signal()
        taken = Signal(access_layout(self._config))
        m.d.sync += compared.eq(accept)
        steps = Signal(32)
        m.d.comb += steps.eq(request.mask ^ (request.mask >> 1))
        with m.If(accept):
            m.d.sync += [
                tail.eq(tail + 1),
                taken.slot.eq(tail),
                taken.access.eq(request.access),
                taken.traffic_class.eq(request.traffic_class.as_value()),
                taken.wg.eq(request.wg),
                taken.wf.eq(request.wf),
                taken.va.eq(request.va),
                taken.empty.eq(request.mask == 0),
                taken.splits_2.eq((steps & 0x55555555).any()),
                taken.splits_4.eq((steps & 0x77777777).any()),
            ]
        return compared, taken, match

    def _look_up(self, m: Module, compared: Signal, taken: data.View, match: RangeMatch) -> tuple[LookedUp, RangeTable]:
        """Cycle c + 1: the range's words, and the wg relative to its first one."""
        # All bits of them, with protection too: a memory of those that are read is too small for a macro.
        words = [Word.CONTROL, Word.WORKGROUPS, Word.GROUPING]
        m.submodules.table = table = RangeTable(self._config, words)
        m.d.comb += [table.write.eq(self.ranges), table.index.eq(match.index)]
        if self._config.protects_memories:
            m.d.comb += table.used.eq(compared & match.hit)
        matched = Signal()
        found = Signal(access_layout(self._config))
        hit = Signal()
        index = Signal(self._config.range_bits)
        control = Signal(Control)
        relative = Signal(signed(max(self._config.wg_bits, 16) + 1))
        workgroups = Signal(16)
        wfs = Signal(4)
        m.d.sync += matched.eq(compared)
        with m.If(compared):
            m.d.sync += [
                found.eq(taken),
                hit.eq(match.hit),
                index.eq(match.index),
                control.eq(table.control),
                relative.eq(taken.wg - table.workgroups.base),
                workgroups.eq(table.workgroups.count),
                wfs.eq(table.grouping.wfs),
            ]
        return LookedUp(matched, found, hit, index, control, relative, workgroups, wfs), table

    def _decide(self, m: Module, looked_up: LookedUp, decision_write: WritePort) -> tuple[Signal, SendControls]:
        """Cycle c + 2: decide, by the rules in the order of the class's description. Returns "an accepted write that
        only an armed node accepts, or a first touch", and where it looked up sends."""
        m.submodules.sends = sends = SendControls(self._config, "access", "dtype")
        send = sends.control
        matched, found, hit, index, control, relative, workgroups, wfs = looked_up
        read = Signal()
        remote = Signal()
        dtype = Signal(DataType)
        update = Signal()
        counted = Signal()
        foreign = Signal()
        wide = Signal()
        refuse = Signal()
        fault = Signal(Fault)
        m.d.comb += [
            sends.write.eq(self.sends),
            sends.index.eq(control.first_send),
            read.eq(found.access == Access.READ),
            remote.eq(control.mapping == Mapping.REMOTE),
            # What a remote-mapped store does at the peer is for its send to say.
            update.eq(
                Mux(
                    remote,
                    send.access == Access.UPDATE,
                    (found.access == Access.UPDATE) | (control.access == Access.UPDATE),
                )
            ),
            counted.eq(remote | control.tracked),
            foreign.eq((relative < 0) | (relative >= workgroups) | (found.wf >= wfs)),
            dtype.eq(Mux(remote, send.dtype.as_value(), control.dtype.as_value())),
            wide.eq((dtype == DataType.FP32) | (dtype == DataType.INT32)),
        ]
        with m.If(~hit):
            m.d.comb += [refuse.eq(1), fault.eq(Fault.OUTSIDE)]
        with m.Elif(read):
            m.d.comb += [refuse.eq(remote), fault.eq(Fault.REMOTE_READ)]
        with m.Elif(counted & ~self.armed):
            m.d.comb += [refuse.eq(1), fault.eq(Fault.NOT_ARMED)]
        with m.Elif(counted & foreign):
            m.d.comb += [refuse.eq(1), fault.eq(Fault.TILE)]
        with m.Elif(found.empty | (update & (found.splits_2 | (wide & found.splits_4)))):
            m.d.comb += [refuse.eq(1), fault.eq(Fault.MASK)]

        decision = decision_write.data
        m.d.comb += [
            decision_write.addr.eq(found.slot),
            decision_write.en.eq(matched),
            decision.alu.eq(control.alu.as_value()),
            decision.dtype.eq(control.dtype.as_value()),
            decision.first_touch.eq(control.first_touch & ~read),
            decision.tracked.eq(control.tracked & ~read),
            decision.first_send.eq(control.first_send),
            decision.sends.eq(control.sends),
            decision.va.eq(found.va),
            decision.wg.eq(found.wg),
            decision.traffic_class.eq(found.traffic_class),
            decision.range.eq(index),
            decision.wf.eq(found.wf),
            decision.epoch.eq(self.epoch),
        ]
        with m.Switch(control.first_send[: self._config.send_bits]):
            for number, port in enumerate(self.port_of):
                with m.Case(number):
                    m.d.comb += decision.port.eq(port)
        with m.If(read):
            m.d.comb += decision.access.eq(Access.READ)
        with m.Elif(update):
            m.d.comb += decision.access.eq(Access.UPDATE)
        with m.Else():
            m.d.comb += decision.access.eq(Access.STORE)
        with m.If(refuse):
            m.d.comb += decision.destination.eq(Mux(read, Destination.REFUSED_READ, Destination.NOWHERE))
        with m.Elif(remote):
            m.d.comb += decision.destination.eq(Destination.REMOTE)
        with m.Else():
            m.d.comb += decision.destination.eq(Destination.LOCAL)
        self._record(m, found, matched & refuse, fault)
        if self._config.protects_memories:
            m.d.comb += sends.used.eq(matched & hit & remote)
        belongs = Signal()
        m.d.comb += belongs.eq(matched & ~refuse & ~read & (counted | control.first_touch))
        return belongs, sends

    def _record(self, m: Module, found: data.View, refused: Value, fault: Signal) -> None:
        """Leave a record of what was refused. One that waits is kept: the first fault is the one worth reading."""
        record = Signal(self._messages.fault_record)
        recorded = Signal()
        m.d.comb += [self.faults.valid.eq(recorded), self.faults.payload.eq(record)]
        m.d.sync += self.refused.eq(refused)
        with m.If(refused & (~recorded | self.faults.ready)):
            m.d.sync += [
                recorded.eq(1),
                record.fault.eq(fault),
                record.link.eq(0),
                record.access.eq(found.access),
                record.va.eq(found.va),
                record.wg.eq(found.wg),
                record.wf.eq(found.wf),
            ]
        with m.Elif(self.faults.ready):
            m.d.sync += recorded.eq(0)

    def _hand_over(
        self, m: Module, decision_read: ReadPort, payload_read: ReadPort, head: Signal, decided: Signal, release: Signal
    ) -> None:
        """Cycle c + 3: offer the oldest decided access."""
        chosen = decision_read.data
        carried = payload_read.data
        offered = Signal()
        m.d.comb += [
            decision_read.addr.eq(head),
            payload_read.addr.eq(head),
            offered.eq(decided != 0),
            self.local.valid.eq(offered & (chosen.destination == Destination.LOCAL)),
            self.remote.valid.eq(offered & (chosen.destination == Destination.REMOTE)),
            self.refused_reads.valid.eq(offered & (chosen.destination == Destination.REFUSED_READ)),
            release.eq(
                (self.local.valid & self.local.ready)
                | (self.remote.valid & self.remote.ready)
                | (self.refused_reads.valid & self.refused_reads.ready)
                | (offered & (chosen.destination == Destination.NOWHERE))
            ),
            self.local.payload.source.eq(Source.COMPUTE),
            self.local.payload.id.eq(carried.id),
            self.local.payload.range.eq(chosen.range),
            self.local.payload.first_touch.eq(chosen.first_touch),
            self.local.payload.tracked.eq(chosen.tracked),
            self.local.payload.access.eq(chosen.access),
            self.local.payload.alu.as_value().eq(chosen.alu),
            self.local.payload.dtype.as_value().eq(chosen.dtype),
            self.local.payload.traffic_class.as_value().eq(chosen.traffic_class),
            self.remote.payload.first_send.eq(chosen.first_send),
            self.remote.payload.sends.eq(chosen.sends),
            self.remote.payload.port.eq(chosen.port),
            self.refused_reads.payload.id.eq(carried.id),
            self.refused_reads.payload.error.eq(1),
            self.refused_reads.payload.data.eq(0),
        ]
        for output in (self.local.payload, self.remote.payload):
            m.d.comb += [
                output.epoch.eq(chosen.epoch),
                output.wg.eq(chosen.wg),
                output.wf.eq(chosen.wf),
                output.va.eq(chosen.va),
                output.mask.eq(carried.mask),
                output.data.eq(carried.data),
            ]
