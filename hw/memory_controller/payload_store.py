"""What a request carries, kept by index while its address waits for the DRAM: each part in a memory of its own, read
when it is needed."""

from amaranth import Cat, Module, Signal, Value
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..geometry import ROW_BITS
from ..messages import BANK_SHAPE, Access, Messages, Source
from ..primitives.places import FreeList
from ..primitives.queue import memory_depth
from .bank_machine import slot_layout
from .parameters import ControllerParameters


def count_ones(mask: Value) -> Value:
    """Number of ones of `mask`, as a tree of adders."""
    counts = list(mask)
    while len(counts) > 1:
        counts = [sum(counts[place + 1 : place + 2], counts[place]) for place in range(0, len(counts), 2)]
    return counts[0]


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
    with its `bank`, `row` and `index` goes to the DRAM queue. `to_bank_index`: `slot`, what its bank machine is told
    (0 cycles). `select` with `select_index`: `identity` in the next cycle and until the next one. `issued` with
    `issued_index`: its column command is on the bus; WL cycles later its `write_data` is, and the place is free a cycle
    before.

    The address of a request in its channel is its sector address without the channel bits; from the bottom: bank group
    (2), column (6), bank (2), row (15). The memories need no reset: a place is read only after it was written.
    """

    def __init__(self, config: ControllerParameters):
        self._config = config
        self._messages = messages = Messages(config)
        index = range(memory_depth(config.dram_queue_depth))
        slot = slot_layout(config)
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
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, messages = self._config, self._messages
        depth = config.dram_queue_depth
        m.submodules.free_list = free_list = FreeList(depth)

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

        m.submodules.slots = slots = Memory(shape=self.slot.shape(), depth=memory_depth(depth), init=[])
        m.submodules.identities = identities = Memory(shape=identity_layout(config), depth=memory_depth(depth), init=[])
        m.submodules.write_data_memory = sectors = Memory(shape=messages.write_data, depth=memory_depth(depth), init=[])
        slot_write = slots.write_port()
        slot_read = slots.read_port(domain="comb")
        identity_write = identities.write_port()
        identity_read = identities.read_port()
        sector_write = sectors.write_port()
        sector_read = sectors.read_port()
        for port in (slot_write, identity_write):
            m.d.comb += [port.addr.eq(self.index), port.en.eq(self.inserted)]
        m.d.comb += slot_write.data.index.eq(self.index)
        m.d.comb += slot_write.data.column.eq(local[2:8])
        for name in ("access", "alu", "dtype", "first_touch", "epoch", "traffic_class"):
            m.d.comb += slot_write.data[name].eq(entering[name])
        for name in ("range", "wg", "wf", "epoch", "va"):
            m.d.comb += identity_write.data.commit[name].eq(entering[name])
        m.d.comb += [
            identity_write.data.commit.bytes.eq(count_ones(entering.mask)),
            identity_write.data.tracked.eq(entering.tracked & (entering.access != Access.READ)),
            identity_write.data.settles.eq(entering_settles),
            identity_write.data.source.eq(entering.source),
            identity_write.data.id.eq(entering.id),
            sector_write.addr.eq(free_list.index),
            sector_write.en.eq(self.take),
            sector_write.data.mask.eq(self.request.mask),
            sector_write.data.data.eq(self.request.data),
            slot_read.addr.eq(self.to_bank_index),
            self.slot.eq(slot_read.data),
            identity_read.addr.eq(self.select_index),
            identity_read.en.eq(self.select),
            self.identity.eq(identity_read.data),
        ]

        done, done_index = self.issued, self.issued_index
        for stage in range(config.timing.wl - 1):
            late = Signal(name=f"write_valid_{stage}")
            late_index = Signal.like(done_index, name=f"write_index_{stage}")
            m.d.sync += [late.eq(done), late_index.eq(done_index)]
            done, done_index = late, late_index
        m.d.comb += [
            sector_read.addr.eq(done_index),
            sector_read.en.eq(done),
            self.write_data.eq(sector_read.data),
            free_list.give.eq(done),
            free_list.given.eq(done_index),
        ]
        return m
