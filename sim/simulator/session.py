"""What a simulator is told of one run, as the lines that `sim/models/gpus.cpp` reads: the system, and the session."""

from collections.abc import Mapping
from typing import Any

from hw.config import Configuration
from sim.topologies.topology import Topology

SESSION = "session.txt"
"""File in the folder of the run."""
NOT_NUMBERS = ("phases", "bit_errors", "mirrored_arrays")
"""Of a session, what is no line of its own."""
CROSSING = 1
"""Cycles from one GPU to the next beside a link's latency: inputs of a GPU are registered."""


def session_text(
    config: Configuration,
    topology: Topology,
    session: Mapping[str, Any],
    threads: int,
    quantum: int = 0,
    waves: bool = False,
    nodes: int = 0,
) -> str:
    """The file for GPUs of `config` in `topology`: numbers of `session`, its phases, `bit_errors`, the rate of the
    wires and the seed by which they come, and `mirrored_arrays` (first sector, sectors of a chunk, chunks, first wg, wg
    numbers of a chunk).

    Of the `nodes` (0: all) that are simulated one alone stands for all: what it sends comes back to it as what the rank
    sends it that is wired to the port.

    They are advanced on `threads` threads, `quantum` cycles at a time, at most a link's latency, which 0 stands for;
    one after the other, cycle by cycle, with `waves`. The lanes of one alone share the threads.
    """
    latency, nodes = config.link_latency, nodes or topology.gpus
    numbers = {
        "gpus": nodes,
        "threads": 1 if waves else min(threads, nodes),
        "lane_threads": 1 if waves or nodes > 1 else min(threads, config.lanes),
        "quantum": 1 if waves else quantum or latency,
        "epoch": latency,
    }
    numbers |= {name: int(value) for name, value in session.items() if name not in NOT_NUMBERS}
    numbers |= {f"phase_{name}": start for name, start in session["phases"].items()}
    lines = [f"{name} {value}" for name, value in numbers.items()]
    rate, seed = session.get("bit_errors", (0.0, 0))
    lines.append(f"bit_errors {round(rate * 1e12)} {seed}")
    lines += wires(topology, latency + CROSSING, nodes, config.lanes)
    if nodes < topology.gpus:
        senders = (topology.source(0, port) for port in range(topology.ports))
        lines += [
            f"mirrored 0 {port * config.lanes + lane} {sender}"
            for port, sender in enumerate(senders)
            for lane in range(config.lanes)
        ]
        lines += [f"mirrored_array {' '.join(map(str, array))}" for array in session["mirrored_arrays"]]
    if waves:
        lines.append("waves 1")
    return "\n".join(lines) + "\n"


def wires(topology: Topology, delay: int, nodes: int, lanes: int = 1) -> list[str]:
    """A line for every wire between two link ports of `nodes` nodes, one or all, and for each of its `lanes`: whose
    input which output reaches, and after how many cycles."""
    lines = []
    for rank in range(nodes):
        for port, (sent, received) in enumerate(zip(topology.sends, topology.receives, strict=True)):
            for kind, other in (("flits", received), ("messages", sent)):
                peer = (rank + other.shift) % nodes
                lines += [
                    f"{kind} {rank} {port * lanes + lane} {peer} {other.port * lanes + lane} {delay}"
                    for lane in range(lanes)
                ]
    return lines
