"""What a request carries, kept by index while its address waits for the DRAM: each part in a memory of its own, read
when it is needed."""

from amaranth import Cat, Module, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..geometry import ROW_BITS
from ..messages import BANK_SHAPE, Access, Messages, Source
from ..next_word_upset import NextWordUpset
from ..primitives.count_ones import count_ones
from ..primitives.memory_watch import watch
from ..primitives.partial_parities import partial_parities
from ..primitives.places import FreeList
from ..primitives.queue import memory_depth
from ..protection import MemoryUpset, ProtectedMemory
from .bank_machine import slot_layout
from .parameters import ControllerParameters

PARITY_PART = 18
"""Bits of a sector whose parity is found in the cycle in which they leave the memory."""


def identity_layout(config: ControllerParameters) -> data.StructLayout:
    """Who a request is from: its `commit` if it is `tracked`, if it `settles`, the reader and its tag."""
    messages = Messages(config)
    return data.StructLayout(
        {
            "commit": messages.commit,
            "tracked": unsigned(1),
            "settles": unsigned(1),
            "source": Source,
            "id": messages.memory_id,
        }
    )


class PayloadStore(wiring.Component):
    """`dram_queue_depth` places.

    Ports: `room`: a place is free; `take` with `request` and `settles`: it gets one, and in the next cycle `inserted`
    with its `bank`, `row` and `index` goes to the DRAM queue. `to_bank_index`: `slot`, what its bank machine is told (0
    cycles). `select` with `select_index`: `identity` in the next cycle and until the next one. `issued` with
    `issued_index`: its column command is on the bus; WL cycles later its `write_data` is, and the place is free a cycle
    before. With protection of memories `poisoned` tells then that the parity of the sector is not even, and no byte of
    it is written; `upset`: turns bits of a sector that is stored, or the parity of the slot (self test);
    `queues_wrong`, a pulse: something else that is kept was used, and had a wrong bit; a slot has its parity with it.

    The address of a request in its channel is its sector address without the channel bits; from the bottom: bank group
    (2), column (6), bank (2), row (15). The memories need no reset: a place is read only after it was written.
    """

    def __init__(self, config: ControllerParameters):
        self._config = config
        self._messages = messages = Messages(config)
        index = range(memory_depth(config.dram_queue_depth))
        slot = slot_layout(config)
        protected = {"upset": In(MemoryUpset), "poisoned": Out(1), "queues_wrong": Out(1)}
        super().__init__(
            {
                "room": Out(1),
                "take": In(1),
                "request": In(messages.memory_request),
                "settles": In(1),
                "inserted": Out(1),
                "bank": Out(BANK_SHAPE),
                "row": Out(ROW_BITS),
                "index": Out(index),
                "to_bank_index": In(index),
                "slot": Out(slot),
                "select": In(1),
                "select_index": In(index),
                "identity": Out(identity_layout(config)),
                "issued": In(1),
                "issued_index": In(slot["index"].shape),
                "write_data": Out(messages.write_data),
                **(protected if config.checks_sectors else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, messages = self._config, self._messages
        depth = config.dram_queue_depth
        m.submodules.free_list = free_list = FreeList(depth, checked=config.protects_memories)

        # A request is kept in the cycle after it was taken. Its data needs no register: it is in its memory by then.
        carried = {name: shape for name, shape in messages.memory_request.members.items() if name != "data"}
        entering = Signal(data.StructLayout(carried))
        local = Cat(entering.va[:3], entering.va[3 + config.channel_bits :])
        m.d.comb += [
            self.room.eq(free_list.available),
            free_list.take.eq(self.take),
            self.bank.eq(Cat(local[0:2], local[8:10])),
            self.row.eq(local[10 : 10 + ROW_BITS]),
        ]
        entering_settles = Signal()
        m.d.sync += [self.inserted.eq(self.take), entering_settles.eq(self.settles)]
        with m.If(self.take):
            m.d.sync += [
                self.index.eq(free_list.index),
                *(entering[name].eq(self.request[name]) for name in carried),
            ]

        kept = data.StructLayout({"mask": messages.write_data["mask"].shape, "data": messages.sector})
        m.submodules.slots = slots = Memory(shape=self.slot.shape(), depth=memory_depth(depth), init=[])
        m.submodules.identities = identities = Memory(shape=identity_layout(config), depth=memory_depth(depth), init=[])
        m.submodules.write_data_memory = sectors = Memory(shape=kept, depth=memory_depth(depth), init=[])
        slot_write = slots.write_port()
        slot_read = slots.read_port(domain="comb")
        identity_write = identities.write_port()
        identity_read = identities.read_port()
        sector_write = sectors.write_port()
        sector_read = sectors.read_port()
        m.d.comb += [
            slot_write.addr.eq(self.index),
            slot_write.en.eq(self.inserted),
            slot_write.data.index.eq(self.index),
            slot_write.data.column.eq(local[2:8]),
        ]
        for name in ("access", "alu", "dtype", "first_touch", "epoch", "traffic_class"):
            m.d.comb += slot_write.data[name].eq(entering[name])
        # Bytes are counted in a cycle of their own: nobody asks who a request is from before it went to its bank.
        identified = Signal(identity_layout(config))
        m.d.sync += [
            identity_write.addr.eq(self.index),
            identity_write.en.eq(self.inserted),
            *(identified.commit[name].eq(entering[name]) for name in ("range", "wg", "wf", "epoch", "va")),
            identified.commit.bytes.eq(count_ones(entering.mask)),
            identified.tracked.eq(entering.tracked & (entering.access != Access.READ)),
            identified.settles.eq(entering_settles),
            identified.source.eq(entering.source),
            identified.id.eq(entering.id),
        ]
        m.d.comb += [
            identity_write.data.eq(identified),
            sector_write.addr.eq(free_list.index),
            sector_write.en.eq(self.take),
            sector_write.data.mask.eq(self.request.mask),
            slot_read.addr.eq(self.to_bank_index),
            self.slot.eq(slot_read.data),
            identity_read.addr.eq(self.select_index),
            identity_read.en.eq(self.select),
            self.identity.eq(identity_read.data),
        ]

        sector: Value = self.request.data
        if config.checks_sectors:
            m.submodules.upset = turns = NextWordUpset(ProtectedMemory.SECTORS, len(sector))
            m.d.comb += [turns.upset.eq(self.upset), turns.stored.eq(self.take)]
            sector = sector ^ turns.flips
            m.submodules.queue_upset = parity_turns = NextWordUpset(ProtectedMemory.QUEUES, 1)
            said = Cat(slot_write.data[name] for name in self.slot.shape().members if name != "parity")
            m.d.comb += [
                parity_turns.upset.eq(self.upset),
                parity_turns.stored.eq(self.inserted),
                slot_write.data.parity.eq(said.xor() ^ parity_turns.flips),
            ]
            identity_watch = watch(m, "identity_watch", identity_write, (identity_read, self.select))
            m.d.comb += self.queues_wrong.eq(free_list.wrong | identity_watch.wrong)
        m.d.comb += sector_write.data.data.eq(sector)

        steps = [(self.issued, self.issued_index)]
        for stage in range(config.timing.wl - 1):
            late = Signal(name=f"write_valid_{stage}")
            late_index = Signal.like(self.issued_index, name=f"write_index_{stage}")
            m.d.sync += [late.eq(steps[-1][0]), late_index.eq(steps[-1][1])]
            steps.append((late, late_index))
        done, done_index = steps[-1]
        # Where parity is looked at, the sector is read a cycle ahead.
        read, read_index = steps[-2] if config.checks_sectors else steps[-1]
        m.d.comb += [
            sector_read.addr.eq(read_index),
            sector_read.en.eq(read),
            free_list.give.eq(done),
            free_list.given.eq(done_index),
        ]
        if config.checks_sectors:
            self._check(m, sector_read.data)
        else:
            m.d.comb += self.write_data.eq(sector_read.data)
        return m

    def _check(self, m: Module, read: data.View) -> None:
        """Writes nothing of a sector whose parity is not even, which takes a cycle: parts of it, then all."""
        word = Signal.like(read)
        arriving = partial_parities(read.as_value(), PARITY_PART)
        parts = Signal(len(arriving))
        m.d.sync += [word.eq(read), parts.eq(arriving)]
        m.d.comb += [
            self.poisoned.eq(parts.xor()),
            self.write_data.data.eq(word.data),
            self.write_data.mask.eq(word.mask & ~self.poisoned.replicate(len(word.mask))),
        ]
