"""What a simulator is told of one run, as the lines that `sim/models/session.h` reads: the system, and the session."""

from collections.abc import Mapping
from typing import Any

from hw.config import Configuration
from sim.models.link import FRACTION_BITS
from sim.topologies.hosted import Hosted
from sim.topologies.known import Wiring
from sim.topologies.switch import Switch
from sim.topologies.topology import Topology

SESSION = "session.txt"
"""File in the folder of the run."""
NOT_NUMBERS = ("phases", "bit_errors", "mirrored_arrays", "link_rates")
"""Of a session, what is no line of its own."""
CROSSING = 1
"""Cycles from one GPU to the next, or to a switch, beside a link's latency: inputs of a GPU are registered."""


def session_text(
    config: Configuration,
    topology: Wiring,
    session: Mapping[str, Any],
    threads: int,
    quantum: int = 0,
    waves: bool = False,
    nodes: int = 0,
) -> str:
    """The file for GPUs of `config` in `topology`: numbers of `session`, its phases, `bit_errors`, the rate of the
    wires and the seed by which they come, `mirrored_arrays` (first sector, sectors of a chunk, chunks, first wg, wg
    numbers of a chunk), and `link_rates` of links that are slower than those of `config` (rank and port that they lead
    from, bytes a cycle).

    Of the `nodes` (0: all) that are simulated one alone stands for all: what it sends comes back to it as what the rank
    sends it that is wired to the port.

    They are advanced on `threads` threads, `quantum` cycles at a time, at most a link's latency, which 0 stands for;
    one after the other, cycle by cycle, with `waves`. The lanes of one alone share the threads. On a switch each of the
    two links on the way has half of the latency (:func:`switch_latencies`), which then is the longest quantum.
    """
    latency, nodes = config.link_latency, nodes or topology.gpus
    switched = isinstance(topology, Switch)
    planes = config.lanes if switched else 0
    longest = max(1, min(switch_latencies(latency))) if switched else latency
    numbers = {
        "gpus": nodes,
        "threads": 1 if waves else min(threads, nodes + planes),
        "lane_threads": 1 if waves or nodes > 1 else min(threads, config.lanes),
        "quantum": 1 if waves else quantum or longest,
        "epoch": latency,
    }
    numbers |= {name: int(value) for name, value in session.items() if name not in NOT_NUMBERS}
    numbers |= {f"phase_{name}": start for name, start in session["phases"].items()}
    lines = [f"{name} {value}" for name, value in numbers.items()]
    rate, seed = session.get("bit_errors", (0.0, 0))
    lines.append(f"bit_errors {round(rate * 1e12)} {seed}")
    if isinstance(topology, Switch):
        lines.append(f"switch_planes {planes}")
        lines += switch_wires(topology, latency, config.lanes)
    elif isinstance(topology, Hosted):
        lines += hosted_wires(topology, latency + CROSSING, config.lanes)
    else:
        lines += wires(topology, latency + CROSSING, nodes, config.lanes)
    lines += [
        f"link_rate {rank} {port} {round(rate / config.lanes * 2**FRACTION_BITS)}"
        for rank, port, rate in session.get("link_rates", ())
    ]
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
                peer = other.gpu(rank, nodes)
                lines += [
                    f"{kind} {rank} {port * lanes + lane} {peer} {other.port * lanes + lane} {delay}"
                    for lane in range(lanes)
                ]
    return lines


def hosted_wires(hosted: Hosted, delay: int, lanes: int = 1) -> list[str]:
    """The same for links between GPUs and a host."""
    lines = []
    for rank, port, peer, end in hosted.links():
        for lane in range(lanes):
            there, here = f"{peer} {end * lanes + lane}", f"{rank} {port * lanes + lane}"
            lines += [f"flits {there} {here} {delay}", f"messages {here} {there} {delay}"]
    return lines


def switch_latencies(latency: int) -> tuple[int, int]:
    """Cycles of the link from a GPU to the switch and of the one from the switch, of a latency of both together."""
    return latency - latency // 2, latency // 2


def switch_wires(switch: Switch, latency: int, lanes: int = 1) -> list[str]:
    """The same for the wires between GPUs and a switch, each of whose lanes has a number behind those of the GPUs."""
    there, back = (half + CROSSING for half in switch_latencies(latency))
    lines = []
    for rank in range(switch.gpus):
        for lane in range(lanes):
            plane = switch.gpus + lane
            for kind in ("flits", "messages"):
                lines += [f"{kind} {plane} {rank} {rank} {lane} {there}", f"{kind} {rank} {lane} {plane} {rank} {back}"]
    return lines
