"""Down counters of many lanes, stored bit plane by bit plane.

Plane k holds bit k of every lane's counter. As hardware this is one small counter per lane; in simulation all lanes
count in a few word-wide operations.
"""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class LaneTimers(wiring.Component):
    """Times a minimum distance between commands for each of `lanes` lanes (banks, bank groups or 1).

    `cycles` lists the distances; start bit b of `start_n` begins distance `cycles[n]` in lane b in this cycle. `busy`
    bit b is high in the cycles 1 to `cycles[n]` - 1 after it, so the next command may come exactly `cycles[n]` cycles
    later. A lane is started only by one `start_n` at a time, and a start replaces what is left of an earlier one.
    """

    def __init__(self, lanes: int, *cycles: int):
        self._lanes = lanes
        self._cycles = cycles
        super().__init__({**{f"start_{n}": In(lanes) for n in range(len(cycles))}, "busy": Out(lanes)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = (max(self._cycles) - 1).bit_length()
        if not width:
            return m
        planes = [Signal(self._lanes, name=f"plane_{k}") for k in range(width)]
        busy = planes[0]
        for plane in planes[1:]:
            busy = busy | plane
        m.d.comb += self.busy.eq(busy)
        starts = [getattr(self, f"start_{n}") for n in range(len(self._cycles))]
        started = Signal(self._lanes)
        any_start = starts[0]
        for start in starts[1:]:
            any_start = any_start | start
        m.d.comb += started.eq(any_start)
        with m.If((self.busy | started).any()):
            borrow = self.busy & ~started
            for k, plane in enumerate(planes):
                loaded = 0
                for start, cycles in zip(starts, self._cycles, strict=True):
                    if (cycles - 1) >> k & 1:
                        loaded = loaded | start
                m.d.sync += plane.eq(((plane ^ borrow) & ~started) | loaded)
                borrow = borrow & ~plane
        return m
