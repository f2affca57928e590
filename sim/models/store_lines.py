"""Where remote stores leave by several ports: the lines in which workgroups wait for room for what they store."""

from amaranth import Module, Signal
from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.primitives.queue import Queue
from sim.models.plan_layout import MAX_SLOTS

Place = data.StructLayout({"slot": range(MAX_SLOTS), "side": unsigned(1)})
"""A slot and the kernel that has it."""


class StoreLines(wiring.Component):
    """A line for local stores and one for those to each of `ports` link ports: who is over first stores first, as the
    tiles that follow it on the way round are expected, and those that wait for one port hold up no other. While no
    remote store has any of the room nobody joins a line, and whoever is looked at first stores first.

    Ports: `at`, the slot that is looked at, whose workgroup is `over` and stores a `tile` of so many sectors, by link
    port `port` if it is `remote`; `waits`: it stands in its line. `room`: there is room for the tile; `room_to_port`:
    among the stores to each port; `shared`: remote stores have some of the room. `goes`: it stores now; `joins`: it
    stands in its line from now on; `following`, if `calls`: the slot to be looked at next, as the one in front of it in
    line went in the cycle before.
    """

    def __init__(self, ports: int):
        self._ports = ports
        super().__init__(
            {
                "at": In(Place),
                "over": In(1),
                "waits": In(1),
                "remote": In(1),
                "port": In(4),
                "room": In(1),
                "room_to_port": In(ports),
                "shared": In(1),
                "goes": Out(1),
                "joins": Out(1),
                "calls": Out(1),
                "following": Out(Place),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for number in range(self._ports + 1):
            m.submodules[f"line_{number}"] = line = Queue(Place, MAX_SLOTS)
            concerned, room, went = (Signal(name=f"{name}_{number}") for name in ("concerned", "room", "went"))
            first = ~line.o.valid | self.waits & (line.o.payload.slot == self.at.slot)
            if number == 0:
                m.d.comb += [concerned.eq(self.over & ~self.remote), room.eq(self.room)]
            else:
                port = number - 1
                m.d.comb += [
                    concerned.eq(self.over & self.remote & (self.port == port)),
                    room.eq(self.room & self.room_to_port[port]),
                ]
            m.d.comb += [
                line.i.payload.eq(self.at),
                line.i.valid.eq(concerned & self.joins),
                line.o.ready.eq(concerned & self.goes & self.waits),
            ]
            with m.If(concerned):
                m.d.comb += [self.goes.eq(first & room), self.joins.eq(self.shared & ~self.waits & ~(first & room))]
            m.d.sync += went.eq(line.o.ready)
            with m.If(went & line.o.valid):
                m.d.comb += [self.calls.eq(1), self.following.eq(line.o.payload)]
        return m
