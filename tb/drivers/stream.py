"""Drivers of the valid/ready streams of a design, with random stalls and a check of the protocol.

A stream `name` of a component is flattened to `name__payload`, `name__valid` and `name__ready`; payloads are plain
integers here. Both drivers change their signals just after a rising edge and sample when the cycle has settled.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import Event, ReadOnly, RisingEdge

Stall = Callable[[], bool]


def stalls(percent: float) -> Stall:
    """A stall generator that is true in `percent` of the cycles."""
    return lambda: random.random() * 100 < percent


def never() -> bool:
    """The stall generator that never stalls."""
    return False


def until_offered() -> bool:
    """In place of a stall generator: a sink that is ready only for what was offered in the cycle before.

    A design whose `valid` waits for `ready` comes to a stop.
    """
    return False


class _StreamPort:
    """The signals of stream `name` of `dut`; `taken` counts its transfers."""

    def __init__(self, dut: Any, name: str, clk: Any, stall: Stall | None = None):
        self.name = name
        self.stall = stall or never
        self.taken = 0
        self._reset = getattr(dut, "rst", None)
        self._clk = clk
        self._payload = getattr(dut, f"{name}__payload", None)
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = getattr(dut, f"{name}__ready", None)
        self._progress = Event()

    async def progress(self) -> None:
        """Return after the next transfer."""
        self._progress.clear()
        await self._progress.wait()

    def _in_reset(self) -> bool:
        return self._reset is not None and bool(int(self._reset.value))


class StreamSource(_StreamPort):
    """Offers the payloads put in `queue`, in order, holding each one until it is taken.

    `stall` is asked once per cycle while nothing is offered; true leaves `valid` low for that cycle, and the payload is
    anything: what `idle` makes of the last one, random bits by default. `taken` counts the transfers. Nothing is
    offered while the design is in reset.
    """

    def __init__(
        self,
        dut: Any,
        name: str,
        clk: Any,
        stall: Stall | None = None,
        idle: Callable[[int], int] | None = None,
    ):
        super().__init__(dut, name, clk, stall)
        self.queue: deque[int] = deque()
        self._idle = idle
        self._offered = False
        self._valid.value = 0
        cocotb.start_soon(self._run())

    async def send(self, payload: int) -> None:
        """Queue `payload` and return when it, and all that was queued before it, has been taken."""
        self.queue.append(payload)
        target = self.taken + len(self.queue)
        while self.taken < target:
            await self.progress()

    async def drain(self) -> None:
        """Return when everything queued has been taken."""
        while self.queue:
            await self.progress()

    def drop(self) -> None:
        """Forget what is queued, but for a payload that is being offered."""
        while len(self.queue) > self._offered:
            self.queue.pop()

    def withdraw(self) -> None:
        """Forget everything, in reset: nothing offered need be taken then."""
        self.queue.clear()
        self._offered = False
        self._valid.value = 0

    async def _run(self) -> None:
        while True:
            await RisingEdge(self._clk)
            if not self._offered:
                if self.queue and not self._in_reset() and not self.stall():
                    if self._payload is not None:
                        self._payload.value = self.queue[0]
                    self._valid.value = 1
                    self._offered = True
                else:
                    if self._payload is not None and int(self._valid.value):
                        rubbish = random.getrandbits(len(self._payload))
                        self._payload.value = self._idle(int(self._payload.value)) if self._idle else rubbish
                    self._valid.value = 0
                    continue
            await ReadOnly()
            if (self._ready is None or int(self._ready.value)) and not self._in_reset():
                self.queue.popleft()
                self.taken += 1
                self._offered = False
                self._progress.set()


class StreamSink(_StreamPort):
    """Takes payloads into `received`, with stalls at random.

    `stall` is asked once per cycle; true keeps `ready` low (see also :func:`until_offered`). `taken` counts the
    transfers. Raises :class:`AssertionError` (which fails the test) when a payload changes or `valid` falls before it
    was taken.
    """

    def __init__(self, dut: Any, name: str, clk: Any, stall: Stall | None = None):
        super().__init__(dut, name, clk, stall)
        self.received: deque[int] = deque()
        if self._ready is not None:
            self._ready.value = 0
        cocotb.start_soon(self._run())

    async def receive(self) -> int:
        """The next payload, waiting for it if necessary."""
        while not self.received:
            await self.progress()
        return self.received.popleft()

    async def _run(self) -> None:
        waiting = None
        offered = False
        while True:
            await RisingEdge(self._clk)
            ready = self._ready is None or (offered if self.stall is until_offered else not self.stall())
            if self._ready is not None:
                self._ready.value = int(ready)
            await ReadOnly()
            offered = bool(int(self._valid.value)) and not ready
            if self._in_reset():
                waiting = None
                continue
            if not int(self._valid.value):
                assert waiting is None, f"{self.name}: valid fell before the payload was taken"
                continue
            payload = 0 if self._payload is None else int(self._payload.value)
            assert waiting is None or waiting == payload, (
                f"{self.name}: payload changed from {waiting:#x} to {payload:#x} before it was taken"
            )
            if ready:
                waiting = None
                self.taken += 1
                self.received.append(payload)
                self._progress.set()
            else:
                waiting = payload
