"""The buses between a memory controller and its DRAM, against the requests that the controller was given."""

from collections import defaultdict, deque
from typing import Any

from hw.config import ROW_BITS, Configuration
from hw.memory_controller.events import ControllerEvents
from hw.messages import Access, ColumnCommand, Messages, RowCommand
from tb.drivers.payload import unpack

COMMANDS = {Access.READ: ColumnCommand.RD, Access.STORE: ColumnCommand.WR, Access.UPDATE: ColumnCommand.UPDATE}


def sector(bank: int, row: int = 0, column: int = 0) -> int:
    """Address of a sector of a channel: bank group, column, bank and row, from the lowest bit on."""
    return bank & 3 | column << 2 | bank >> 2 << 8 | row << 10


class ColumnBus:
    """Watches ports `row`, `column` and `events` of `dut`, a controller of one channel.

    Each column command must be that of the oldest request to its sector (of :meth:`request`) that had none, in all its
    fields, and the events must say what the buses do. `writes`: WR and UPDATE commands so far; `served`: the sector of
    this cycle's column command.
    """

    def __init__(self, dut: Any, config: Configuration):
        self.dut, self.messages = dut, Messages(config)
        self.waiting: dict[int, deque[dict[str, int]]] = defaultdict(deque)
        self.rows: dict[int, int] = {}
        self.fresh: set[int] = set()
        self.writes = 0
        self.served: int | None = None

    def request(self, va: int, access: Access, **fields: int) -> None:
        """A request to sector `va` is about to be given, with these fields of :attr:`Messages.memory_request`; the DRAM
        has no address bits above its rows."""
        place = va % (1 << 10 + ROW_BITS)
        self.waiting[place].append({"access": access.value, "command": COMMANDS[access].value, **fields})

    def cycle(self) -> None:
        """To be called in every cycle when its signals have settled."""
        event = unpack(ControllerEvents, int(self.dut.events.value))
        row_bits, column_bits = int(self.dut.row.value), int(self.dut.column.value)
        row = unpack(self.messages.row_command, row_bits) if row_bits & 1 else {}
        activated = row.get("command") == RowCommand.ACT.value
        assert event["activate"] == activated
        assert event["refresh"] == (row.get("command") == RowCommand.REF.value)
        assert event["column"] == column_bits & 1
        self.served = None
        if column_bits & 1:
            self.served = self._column(unpack(self.messages.column_command, column_bits), event)
        else:
            assert not event["row_hit"]
        if activated:
            self.rows[row["bank"]] = row["row"]
            self.fresh.add(row["bank"])
        if event["idle"]:
            assert not event["occupancy"]

    def _column(self, column: dict[str, int], event: dict[str, int]) -> int:
        """The sector of a column command, which is checked."""
        bank = column["bank"]
        va = sector(bank, self.rows[bank], column["column"])
        assert self.waiting[va], f"a column command to sector {va:#x}, to which no request waits"
        due = self.waiting[va].popleft()
        names = ["command"] if due["access"] == Access.READ.value else ["command", "epoch"]
        if due["access"] == Access.UPDATE.value:
            names += ["alu", "dtype", "first_touch"]
        else:
            assert not column["first_touch"]
        assert {name: column[name] for name in names} == {name: due[name] for name in names}, f"sector {va:#x}"
        assert (event["traffic_class"], event["access"]) == (due["traffic_class"], due["access"])
        assert event["row_hit"] == (bank not in self.fresh)
        assert event["occupancy"], "a request left an empty queue"
        self.fresh.discard(bank)
        self.writes += due["access"] != Access.READ.value
        return va
