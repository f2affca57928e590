"""What a simulator is told of one run, as the lines that `sim/models/gpus.cpp` reads: the system, and the session."""

from collections.abc import Mapping
from typing import Any

from hw.config import Configuration
from sim.topologies.topology import Topology

SESSION = "session.txt"
"""File in the folder of the run."""
CROSSING = 1
"""Cycles from one GPU to the next beside a link's latency: inputs of a GPU are registered."""


def session_text(
    config: Configuration,
    topology: Topology,
    session: Mapping[str, Any],
    threads: int,
    quantum: int = 0,
    waves: bool = False,
) -> str:
    """The file for GPUs of `config` in `topology`: numbers of `session`, its phases, and `bit_errors`, the rate of the
    wires and the seed by which they come.

    They are advanced on `threads` threads, `quantum` cycles at a time, at most a link's latency, which 0 stands for;
    one after the other, cycle by cycle, with `waves`.
    """
    latency = config.link_latency
    numbers = {
        "gpus": topology.gpus,
        "threads": 1 if waves else min(threads, topology.gpus),
        "quantum": 1 if waves else quantum or latency,
        "epoch": latency,
    }
    numbers |= {name: int(value) for name, value in session.items() if name not in ("phases", "bit_errors")}
    numbers |= {f"phase_{name}": start for name, start in session["phases"].items()}
    lines = [f"{name} {value}" for name, value in numbers.items()]
    rate, seed = session.get("bit_errors", (0.0, 0))
    lines.append(f"bit_errors {round(rate * 1e12)} {seed}")
    lines += wires(topology, latency + CROSSING)
    if topology.gpus == 1:
        # One GPU alone is its own neighbour.
        lines.append(f"mirrored 0 {topology.sends[0].port}")
    if waves:
        lines.append("waves 1")
    return "\n".join(lines) + "\n"


def wires(topology: Topology, delay: int) -> list[str]:
    """A line for every wire between two link ports: whose input which output reaches, and after how many cycles."""
    gpus = topology.gpus
    lines = []
    for rank in range(gpus):
        for port, (sent, received) in enumerate(zip(topology.sends, topology.receives, strict=True)):
            source = 0 if gpus == 1 and port == topology.sends[0].port else received.port
            lines.append(f"flits {rank} {port} {(rank + received.shift) % gpus} {source} {delay}")
            lines.append(f"messages {rank} {port} {(rank + sent.shift) % gpus} {sent.port} {delay}")
    return lines
