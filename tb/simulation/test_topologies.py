"""Wires and routes: what leaves by a port arrives where it should, and there are no links but those a topology has."""

import pytest

from hw.config import preset
from sim.errors import UsageError
from sim.simulator.session import CROSSING, hosted_wires, session_text, switch_latencies, switch_wires
from sim.topologies.hosted import Hosted
from sim.topologies.known import TOPOLOGIES, topology
from sim.topologies.mesh import ideal_switch, mesh
from sim.topologies.ring import ring
from sim.topologies.switch import Switch
from sim.topologies.topology import Topology

WIRED = [ring(5), ring(2), ring(3, 1), ring(4, 2, -1), *(mesh(gpus) for gpus in (2, 3, 4, 8, 16)), ideal_switch(8)]


def consistent(wired: Topology) -> None:
    """What leaves by a port arrives at the port that takes in from it, and every port takes in from one."""
    for port, end in enumerate(wired.sends):
        back = wired.receives[end.port]
        assert (back.port, (back.shift + end.shift) % wired.gpus) == (port, 0)
    assert sorted(end.port for end in wired.sends) == list(range(wired.ports))


@pytest.mark.parametrize("wired", WIRED, ids=lambda wired: f"{wired.name}-{wired.gpus}-{wired.ports}")
def test_wires_join_a_port_with_a_port(wired: Topology) -> None:
    consistent(wired)


def test_crossed_wires_are_caught() -> None:
    right = mesh(4)
    with pytest.raises(AssertionError):
        consistent(Topology("crossed", 4, right.sends, tuple(reversed(right.receives)), right.preference))


def test_a_ring_leads_where_it_should() -> None:
    both = ring(5)
    assert [both.port(4, peer) for peer in range(5)] == [0, None, None, 1, None]
    assert ring(5, 1).port(0, 4) is None and ring(5, 1).port(4, 0) == 0
    assert ring(2).port(0, 1) == 0 and ring(2, direction=-1).port(0, 1) == 1
    with pytest.raises(ValueError, match="1 or 2 link ports"):
        ring(4, 3)


@pytest.mark.parametrize("make", [mesh, ideal_switch])
@pytest.mark.parametrize("gpus", [2, 3, 8, 16])
def test_a_mesh_has_a_port_for_every_peer(make, gpus) -> None:
    wired = make(gpus)
    assert wired.ports == gpus - 1
    assert wired.shared == (make is ideal_switch)
    for rank in range(gpus):
        ports = [wired.port(rank, peer) for peer in range(gpus) if peer != rank]
        assert sorted(ports) == list(range(gpus - 1))
        assert wired.port(rank, rank) is None
        for peer in range(gpus):
            port = wired.port(rank, peer)
            if port is not None:
                arrives = wired.sends[port]
                assert (rank + arrives.shift) % gpus == peer
                assert wired.port(peer, rank) == arrives.port


def test_a_switch_is_reached_by_one_port() -> None:
    switch = Switch(4)
    assert [switch.port(1, peer) for peer in range(5)] == [0, None, 0, 0, None]
    assert (switch.ports, switch.gpus) == (1, 4)


def test_every_gpu_has_wires_to_the_switch_and_back() -> None:
    """Of each kind and lane one each way; both halves of the latency, and a cycle at each end, add up to the way."""
    wires = [line.split() for line in switch_wires(Switch(3), latency=7, lanes=2)]
    assert len(wires) == 3 * 2 * 2 * 2 and len({tuple(wire[:3]) for wire in wires}) == len(wires)
    for kind in ("flits", "messages"):
        for rank in "012":
            for lane in "01":
                plane = str(3 + int(lane))
                there = [kind, plane, rank, rank, lane, str(4 + CROSSING)]
                back = [kind, rank, lane, plane, rank, str(3 + CROSSING)]
                assert there in wires and back in wires
    assert switch_latencies(1) == (1, 0)


@pytest.mark.parametrize("mesh", [False, True])
@pytest.mark.parametrize("gpus", [1, 2, 3, 8, 15])
def test_a_host_has_a_link_to_every_gpu(gpus: int, mesh: bool) -> None:
    wired = Hosted(gpus + 1, mesh)
    links = list(wired.links())
    # Nothing is joined twice, and of ports that are joined a peer is known both ways.
    assert len({link[:2] for link in links}) == len({link[2:] for link in links}) == len(links)
    for rank, port, peer, end in links:
        assert wired.port(rank, peer) == port and wired.source(peer, end) == rank
        assert max(port, end) < wired.ports
    for rank in range(gpus):
        assert wired.port(gpus, rank) == rank and wired.port(rank, gpus) is not None
        reached = {peer for peer in range(gpus) if wired.port(rank, peer) is not None}
        others = set(range(gpus)) - {rank}
        assert reached == (others if mesh else others & {(rank + 1) % gpus})
    wires = [line.split() for line in hosted_wires(wired, 7, lanes=2)]
    assert len(wires) == 2 * 2 * len(links)
    for rank, port, peer, end in links:
        for lane in range(2):
            here, there = [str(rank), str(2 * port + lane)], [str(peer), str(2 * end + lane)]
            assert ["flits", *there, *here, "7"] in wires and ["messages", *here, *there, "7"] in wires


def test_a_session_says_the_rate_of_every_slower_link() -> None:
    """For each lane, in 65536ths of a byte a cycle."""
    session = {"phases": {}, "link_rates": [(2, 0, 1.5), (0, 1, 0.25)]}
    config = preset("quad", lanes=2)
    lines = session_text(config, Hosted(3), session, threads=1).splitlines()
    assert [line for line in lines if line.startswith("link_rate")] == ["link_rate 2 0 49152", "link_rate 0 1 8192"]
    assert "link_rate" not in session_text(config, Hosted(3), {"phases": {}}, threads=1)


@pytest.mark.parametrize(
    ("name", "gpus", "sentence"),
    [
        ("mesh", 17, "the mesh joins 2 to 16 GPUs, each with a port for every peer, not 17"),
        ("ideal-switch", 1, "the ideal-switch joins 2 to 16 GPUs"),
        ("switch", 65, "the switch joins 2 to 64 GPUs, not 65"),
        ("hosted-ring", 17, "the hosted-ring joins 2 to 16 ranks, the last of them the host, not 17"),
        (
            "star",
            4,
            "topology must be one of ring, ring-one-way, mesh, ideal-switch, switch, hosted-ring, hosted-mesh; "
            "got 'star'",
        ),
    ],
)
def test_topologies_that_cannot_be_are_refused(name, gpus, sentence) -> None:
    with pytest.raises(UsageError, match=sentence):
        topology(name, gpus)


def test_all_topologies_have_names_and_sizes() -> None:
    for name in TOPOLOGIES:
        for gpus in (2, 3, 8, 16):
            assert topology(name, gpus).gpus == gpus
