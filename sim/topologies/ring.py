"""A ring: port 0 of every GPU leads to the next rank, port 1, where there is one, to the previous rank."""

from sim.topologies.topology import End, Topology


def ring(gpus: int, ports: int = 2, direction: int = 1) -> Topology:
    """A ring of `gpus` GPUs. With two ports a GPU sends and receives on both; with one it sends to the next rank and
    receives from the previous one. `direction` (+1 or -1) says which of the two links between the same GPUs, in a ring
    of two, is used.

    One GPU alone is its own neighbour both ways. Raises :class:`ValueError` for another number of ports.
    """
    onward, back = 1, -1
    if ports == 1:
        return Topology("ring-one-way", gpus, (End(onward, 0),), (End(back, 0),), (0,))
    if ports == 2:
        ends = End(onward, 1), End(back, 0)
        return Topology("ring", gpus, ends, ends, (0, 1) if direction == onward else (1, 0))
    raise ValueError(f"a GPU on a ring has 1 or 2 link ports, not {ports}")
