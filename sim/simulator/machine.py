"""What this machine is to the project: its compiler, its disk and memory, and how fast it compiles."""

import json
import os
import resource
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sim.files import replaced
from sim.simulator.verilator import BUILD

REFERENCE_SECONDS = 0.59
"""Processor time that :func:`compile_seconds` measures on the machine on which :data:`BUILD_SECONDS` were measured."""
BUILD_SECONDS = {"gpu": 29.0, "waves": 56.0, "channel": 16.0, "runtime": 3.0, "lane channel": 4.0}
"""Wall time there, two processors, of building the simulator of a GPU, one with waves, a DRAM channel, what a GPU
shares with others, and what each channel of one whose lanes are models of their own adds, without a compiler cache:
processor time of what is done in turn, and half that of make."""
MEMORY_NEEDED, DISK_NEEDED = 2 << 30, 2 << 30
"""Bytes that the largest build takes, and the builds of a usual session."""
_SAMPLE = """
#include <map>
#include <string>
#include <vector>
#include <functional>
#include <iostream>

std::map<std::string, std::vector<std::function<int(int)>>> functions;
int main() { for (auto& [name, list] : functions) for (auto& item : list) std::cout << name << item(1); }
"""


@dataclass(frozen=True)
class Space:
    """Bytes free of `total`."""

    free: int
    total: int


def disk() -> Space:
    """Of the disk that builds go to."""
    place = next(folder for folder in (BUILD, *BUILD.parents) if folder.exists())
    usage = shutil.disk_usage(place)
    return Space(usage.free, usage.total)


def memory() -> Space:
    """That a new process may take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    known = {name: int(value.split()[0]) << 10 for name, value in (line.split(":", 1) for line in lines)}
    return Space(known["MemAvailable"], known["MemTotal"])


def processors() -> int:
    """That this process may run on."""
    return len(os.sched_getaffinity(0))


def compile_seconds() -> float:
    """Processor time of compiling a sample of C++, the better of two; infinite where that fails."""
    found = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            command = ["g++", "-std=c++20", "-O1", "-c", "-x", "c++", "-o", f"{folder}/sample.o", "-"]
            done = subprocess.run(command, input=_SAMPLE, text=True, capture_output=True, check=False)
        if done.returncode:
            return float("inf")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def slowness() -> float:
    """How much longer than the reference this machine compiles; measured once, and kept with what is built."""
    kept = BUILD / "machine.json"
    try:
        return float(json.loads(kept.read_text())["slowness"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    measured = compile_seconds() / REFERENCE_SECONDS
    if measured < float("inf"):
        with replaced(kept) as draft:
            draft.write_text(json.dumps({"slowness": round(measured, 2)}) + "\n")
    return measured


def build_minutes(*parts: str) -> str:
    """About how long building `parts` (of :data:`BUILD_SECONDS`) takes here, in words."""
    seconds = slowness() * sum(BUILD_SECONDS[part] for part in parts)
    if seconds == float("inf"):
        return "for as long as it takes"
    if processors() == 1:
        seconds *= 1.6
    if seconds < 50:
        return f"about {max(5, 5 * round(seconds / 5))} seconds"
    minutes = max(1, round(seconds / 60))
    return f"about {minutes} minute{'s' if minutes > 1 else ''}"
