"""Whether a memory controller knows of the writes that the next epoch has to wait for."""

from collections import defaultdict, deque
from typing import Any

from hw.config import ROW_BITS, Configuration
from hw.memory_controller.events import ControllerEvents
from hw.messages import Access, Messages, RowCommand
from tb.drivers.column_bus import sector
from tb.drivers.payload import unpack

LATE = 2
"""Cycles after a column command in which its write may still be said not to be settled."""


class UnsettledWrites:
    """Watches `unsettled` of the events of `dut`, a controller of one channel, against its ports and column bus.

    From the cycle after a write that belongs to an epoch was accepted (one of the communication stream, or of the
    compute stream that is tracked or a first touch) until its column command `unsettled` is high, as it is while a
    commit waits; soon after the last of them it is low.
    """

    def __init__(self, dut: Any, config: Configuration):
        self.dut, self.messages = dut, Messages(config)
        self.accepted: dict[int, deque[bool]] = defaultdict(deque)
        """By sector, of each request without a column command, whether `unsettled` is high for it."""
        self.rows: dict[int, int] = {}
        self.open = 0
        """Writes that `unsettled` is high for."""
        self.quiet = 0
        """Cycles since there was one, or a commit waited."""
        self.low = 0
        """Cycles in which it was low."""

    def cycle(self) -> None:
        """To be called in every cycle when its signals have settled."""
        said = unpack(ControllerEvents, int(self.dut.events.value))["unsettled"]
        waits = int(self.dut.commits__valid.value)
        self.quiet = 0 if self.open or waits else self.quiet + 1
        if not self.quiet:
            assert said, "a write that is not at its bank is forgotten"
        elif self.quiet > LATE:
            assert not said, "what is settled is waited for"
            self.low += 1
        for name in ("compute", "communication", "spill"):
            if int(getattr(self.dut, f"{name}__valid").value) and int(getattr(self.dut, f"{name}__ready").value):
                self._accept(
                    name, unpack(self.messages.memory_request, int(getattr(self.dut, f"{name}__payload").value))
                )
        self._issue()

    def _accept(self, name: str, request: dict[str, int]) -> None:
        belongs = name == "communication" or (name == "compute" and (request["tracked"] or request["first_touch"]))
        counts = bool(belongs) and request["access"] != Access.READ.value
        self.accepted[request["va"] % (1 << 10 + ROW_BITS)].append(counts)
        self.open += counts

    def _issue(self) -> None:
        column_bits, row_bits = int(self.dut.column.value), int(self.dut.row.value)
        if column_bits & 1:
            column = unpack(self.messages.column_command, column_bits)
            va = sector(column["bank"], self.rows[column["bank"]], column["column"])
            self.open -= self.accepted[va].popleft()
        if row_bits & 1:
            row = unpack(self.messages.row_command, row_bits)
            if row["command"] == RowCommand.ACT.value:
                self.rows[row["bank"]] = row["row"]
