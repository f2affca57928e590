"""Whether a memory controller knows of the writes that the next epoch has to wait for."""

from collections import defaultdict, deque
from typing import Any

from hw.config import ROW_BITS
from hw.memory_controller.events import ControllerEvents
from hw.messages import Access
from tb.drivers.column_bus import ColumnBus
from tb.drivers.payload import unpack
from tb.functional_coverage.monitors import Handshake

LATE = 2
"""Cycles after a column command in which its write may still be said not to be settled."""


class UnsettledWrites:
    """Watches `unsettled` of the events of `dut`, a controller of one channel, against its ports and `bus`.

    From the cycle after a write that belongs to an epoch was accepted (one of the communication stream, or of the
    compute stream that is tracked or a first touch) until its column command `unsettled` is high, as it is while a
    commit waits; soon after the last of them it is low.
    """

    def __init__(self, dut: Any, bus: ColumnBus):
        self.dut, self.bus = dut, bus
        self.streams = {name: Handshake(dut, name) for name in ("compute", "communication", "spill")}
        self.accepted: dict[int, deque[bool]] = defaultdict(deque)
        """By sector, of each request without a column command, whether `unsettled` is high for it."""
        self.open = 0
        """Writes that `unsettled` is high for."""
        self.quiet = 0
        """Cycles since there was one, or a commit waited."""
        self.low = 0
        """Cycles in which it was low."""

    def cycle(self) -> None:
        """To be called in every cycle after that of the bus."""
        said = unpack(ControllerEvents, int(self.dut.events.value))["unsettled"]
        waits = int(self.dut.commits__valid.value)
        self.quiet = 0 if self.open or waits else self.quiet + 1
        if not self.quiet:
            assert said, "a write that is not at its bank is forgotten"
        elif self.quiet > LATE:
            assert not said, "what is settled is waited for"
            self.low += 1
        for name, stream in self.streams.items():
            payload = stream.taken()
            if payload is not None:
                self._accept(name, unpack(self.bus.messages.memory_request, payload))
        if self.bus.served is not None:
            self.open -= self.accepted[self.bus.served].popleft()

    def _accept(self, name: str, request: dict[str, int]) -> None:
        belongs = name == "communication" or (name == "compute" and (request["tracked"] or request["first_touch"]))
        counts = bool(belongs) and request["access"] != Access.READ.value
        self.accepted[request["va"] % (1 << 10 + ROW_BITS)].append(counts)
        self.open += counts
