"""The Python side of a ring simulation, run by cocotb: start a phase, sleep until it ends.

The job comes as JSON in the file named by T3_JOB and the answer goes to `result.json` beside it; see
:mod:`sim.experiments.run`, which writes the one and reads the other. Register accesses are a program for the
simulation's own AXI4-Lite host (`axi_sequencer.sv`); Python wakes up a few times per run. Nothing of Amaranth is
imported here: that would take longer than everything else Python does in the simulator.
"""

import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import cocotb
from cocotb.handle import HierarchyObject
from cocotb.triggers import First, RisingEdge, Timer


class Ring:
    """Access to a simulated ring through the top's ports."""

    def __init__(self, dut: HierarchyObject, job: dict[str, Any]):
        self.dut = dut
        self.job = job

    async def reset(self) -> None:
        """Reset for a few cycles, every input at 0."""
        for name in ("select", "go", "program_start", "start", "fill", "stall", "dump"):
            getattr(self.dut, name).value = 0
        self.dut.rst.value = 1
        await Timer(5, unit="ns")
        self.dut.rst.value = 0
        await Timer(2, unit="ns")

    async def program(self, phase: str) -> None:
        """Run the register accesses of `phase`."""
        self.dut.program_start.value = self.job["phases"][phase]
        await self.pulse("go")
        assert await self.wait("programmed", "timeout"), f"the register accesses of phase {phase} did not complete"

    async def pulse(self, name: str) -> None:
        """Hold input `name` high for one clock cycle, and let the outputs follow it."""
        getattr(self.dut, name).value = 1
        await Timer(1, unit="ns")
        getattr(self.dut, name).value = 0
        await Timer(3, unit="ns")

    async def wait(self, condition: str, end: str = "trouble") -> bool:
        """Sleep until output `condition` is high, or the time is over; whether it came.

        Trouble ends it too, unless `end` is "timeout": the registers are read in spite of it.
        """
        flag = getattr(self.dut, condition)
        given_up = [RisingEdge(self.dut.trouble)] if end == "trouble" else []
        if not int(flag.value) and not (given_up and int(self.dut.trouble.value)):
            await First(RisingEdge(flag), *given_up, Timer(self.job["timeout"], unit="ns"))
        return bool(int(flag.value))

    async def status(self, rank: int) -> int:
        """The status of `rank` as it comes, one number (:func:`sim.simulator.session_result.read_result` reads it)."""
        self.dut.select.value = rank
        await Timer(1, unit="ns")
        return int(self.dut.status.value)


@cocotb.test()
async def session(dut: HierarchyObject) -> None:
    """One collective: program, time the GEMM alone if asked, zero if asked, arm, run, read the counters, dump."""
    # What was imported lives to the end: it need not be searched for cycles when the interpreter closes.
    gc.freeze()
    job_file = Path(os.environ["T3_JOB"])
    job = json.loads(job_file.read_text())
    ranks = range(job["gpus"])
    ring = Ring(dut, job)
    started = time.perf_counter()
    processor = time.process_time()
    await ring.reset()
    dut.stall.value = job["stall"]
    result: dict[str, Any] = {"alone": []}
    await ring.program("before")
    if job["alone"]:
        # The GEMM by itself, its stores plain and local: what the effective communication time is counted from.
        await ring.pulse("start")
        await ring.wait("all_quiet")
        result["alone"] = [await ring.status(rank) for rank in ranks]
    # After the GEMM alone, which stores into the same memory.
    if job["fill"]:
        await ring.pulse("fill")
        await ring.wait("all_quiet")
    programmed = time.perf_counter()
    result["finished"] = False
    if not int(dut.trouble.value):
        # What was stored so far must be in the DRAM before a neighbour may send.
        await ring.program("settle")
        await ring.program("setup")
        programmed = time.perf_counter()
        await ring.pulse("start")
        if job["late_cycles"]:
            await Timer(job["late_cycles"], unit="ns")
            await ring.program("late")
        if job["doorbells"]:
            await ring.program("doorbells")
        result["finished"] = await ring.wait("all_done")
    simulated = time.perf_counter()
    # The last rank notes its end in the cycle after it.
    await Timer(5, unit="ns")
    if result["finished"] and "drain" in job["phases"]:
        await ring.program("drain")
    result["ranks"] = [await ring.status(rank) for rank in ranks]
    await ring.program("counters")
    # Writes already issued reach the DRAM array a few cycles after the last command.
    await Timer(50, unit="ns")
    await ring.pulse("dump")
    await Timer(5, unit="ns")
    result["seconds"] = {
        "program": programmed - started,
        "simulate": simulated - programmed,
        "read": time.perf_counter() - simulated,
    }
    result["processor_seconds"] = time.process_time() - processor
    (job_file.parent / "result.json").write_text(json.dumps(result))
