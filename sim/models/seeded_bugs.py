"""Faults built around blocks of the hardware on purpose, to show that the checks of a run and of tests find them.

A faulty block is the block itself behind ports of its own. Between them something goes wrong while the run asks for it,
+seeded_bug=<name> of the simulation, by the module `seeded_bug` (`sim/models/seeded_bug.sv`). Otherwise it is right, so
one build serves all :data:`SEEDED_BUGS`.
"""

from amaranth import Cat, Instance, Module, Mux, Signal, Value
from amaranth.lib import data, wiring

from hw.memory_controller import ControllerParameters
from hw.memory_controller.controller import MemoryController
from hw.memory_lane import MemoryLane
from hw.messages import Access, ColumnCommand, Messages
from hw.near_bank import BankGroupUnit, NearBankParameters
from hw.primitives import Queue
from hw.primitives.count_ones import count_ones
from sim.models.recorder import Recorded

SEEDED_BUGS = ("count_at_enqueue", "no_first_touch", "dropped_update", "doubled_trigger")
DROPPED_UPDATE_PERIOD = 97
DOUBLED_TRIGGER_PERIOD = 5


class Faulty(wiring.Component):
    """Base of faulty blocks: `block`, with the same ports."""

    def __init__(self, block: wiring.Component):
        self.block = block
        super().__init__(block.signature)

    def elaborate(self, platform: object) -> Module:
        """The block and its ports joined to these; what a subclass assigns to one of them after that goes before."""
        m = Module()
        m.submodules.block = block = self.block
        outer, inner = self.signature.flatten(self), block.signature.flatten(block)
        for (_, member, port), (_, _, same) in zip(outer, inner, strict=True):
            source, target = (port, same) if member.flow is wiring.In else (same, port)
            m.d.comb += Value.cast(target).eq(source)
        return m

    def _chosen(self, m: Module, name: str) -> Signal:
        """High in a run that is to have the fault `name`."""
        present = Signal(name=f"bug_{name}")
        m.submodules[f"choose_{name}"] = Instance("seeded_bug", p_NAME=name, o_present=present)
        return present


class FaultyBankGroup(Faulty):
    """A near-bank unit. `no_first_touch`: every UPDATE adds to what is there. `dropped_update`: every
    :data:`DROPPED_UPDATE_PERIOD`-th one is lost."""

    def __init__(self, config: NearBankParameters, own_alu: bool = True):
        super().__init__(BankGroupUnit(config, own_alu))

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        column, given = self.block.column, self.column
        never_first = self._chosen(m, "no_first_touch")
        dropping = self._chosen(m, "dropped_update")
        with m.If(never_first):
            m.d.comb += column.first_touch.eq(0)
        number = Signal(range(DROPPED_UPDATE_PERIOD))
        with m.If(given.valid & (given.command == ColumnCommand.UPDATE)):
            m.d.sync += number.eq(number + 1)
            with m.If(number == DROPPED_UPDATE_PERIOD - 1):
                m.d.sync += number.eq(0)
                m.d.comb += column.valid.eq(~dropping)
        return m


class FaultyTrigger(Faulty):
    """A Tracker, or trigger table. `doubled_trigger`: every :data:`DOUBLED_TRIGGER_PERIOD`-th ready block is offered
    twice."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        doubling = self._chosen(m, "doubled_trigger")
        blocks, given = self.blocks, self.block.blocks
        number = Signal(range(DOUBLED_TRIGGER_PERIOD))
        repeating = Signal()
        repeated = Signal.like(given.payload)
        with m.If(repeating):
            m.d.comb += [
                given.ready.eq(0),
                blocks.valid.eq(1),
                blocks.payload.eq(repeated),
                self.waiting.eq(1),
            ]
            with m.If(blocks.ready | self.clear):
                m.d.sync += repeating.eq(0)
        with m.If(~repeating & given.valid & blocks.ready):
            m.d.sync += [number.eq(number + 1), repeated.eq(given.payload)]
            with m.If(number == DOUBLED_TRIGGER_PERIOD - 1):
                m.d.sync += [number.eq(0), repeating.eq(doubling)]
        return m


class FaultyController(Faulty):
    """A memory controller. `count_at_enqueue`: a tracked access is committed when it is accepted, not with its column
    command."""

    def __init__(self, config: ControllerParameters):
        self._config = config
        super().__init__(MemoryController(config))

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        hasty = self._chosen(m, "count_at_enqueue")
        messages, block = Messages(self._config), self.block
        m.submodules.commits = commits = Queue(messages.commit, self._config.commit_queue_depth, bypass=True)
        accepted: list[Value] = []
        for port, inner in ((self.compute, block.compute), (self.communication, block.communication)):
            # One is committed a cycle; the block itself, which sees nothing tracked, reserves no room for that.
            open_ = commits.i.ready & ~Cat(accepted).any()
            with m.If(hasty):
                m.d.comb += [
                    inner.valid.eq(port.valid & open_),
                    inner.payload.tracked.eq(0),
                    port.ready.eq(inner.ready & open_),
                ]
            accepted.append(inner.valid & inner.ready)
        access = data.View(messages.memory_request, Mux(accepted[0], self.compute.payload, self.communication.payload))
        with m.If(hasty):
            m.d.comb += [
                commits.i.valid.eq(Cat(accepted).any() & access.tracked & (access.access != Access.READ)),
                *(commits.i.payload[name].eq(access[name]) for name in ("range", "wg", "wf", "epoch", "va")),
                commits.i.payload.bytes.eq(count_ones(access.mask)),
                self.commits.valid.eq(commits.o.valid),
                self.commits.payload.eq(commits.o.payload),
                commits.o.ready.eq(self.commits.ready),
                self.events.unsettled.eq(block.events.unsettled | (commits.level != 0)),
                self.events.idle.eq(block.events.idle & (commits.level == 0)),
            ]
        return m


class FaultyLane(MemoryLane):
    """A lane whose memory controllers are faulty ones."""

    def _controller(self) -> wiring.Component:
        return FaultyController(self._config)


class FaultyNode(Recorded):
    """A node whose Tracker and lanes are faulty ones."""

    def _tracker(self) -> wiring.Component:
        return FaultyTrigger(super()._tracker())

    def _lane(self) -> MemoryLane:
        return FaultyLane(self._config)
