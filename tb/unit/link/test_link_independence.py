"""Ingress of the link does not depend on egress: there is no path at all from what goes out to what comes in.

Shown on the netlist, for every state and input: the cone of logic and registers behind the ports of ingress holds no
port of egress. So a stuck outgoing link can hold up neither reception nor the state messages that tell the peer of it
(SPEC's deadlock rule).
"""

from collections.abc import Sequence
from fnmatch import fnmatch

from amaranth import Module
from amaranth.lib import wiring
from pyosys import libyosys

from hw.export.verilog import to_rtlil
from hw.link.lane import LinkLane
from hw.link.parameters import LinkParameters

LANE = LinkParameters(ranges=4, channels=2, links=3, dma_packets=4, store_packets=4, link_receive_packets=2)
INGRESS = ("requests__*", "rx__*__ready", "rx_messages__*", "faults__*")
EGRESS = ("sources__*", "sends", "arrivals__*", "discard", "tx__*__ready", "tx_messages__*")


class WaitingForEgress(LinkLane):
    """The wrong variant: port 0 takes a flit only while its own goes out."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(~self.tx[0].ready):
            m.d.comb += self.rx[0].ready.eq(0)
        return m


def inputs_behind(component: wiring.Component, outputs: Sequence[str], tmp_path) -> set[str]:
    """Input ports that some output whose name matches depends on, through any logic, register or memory."""
    source = tmp_path / "design.il"
    source.write_text(to_rtlil(component, "design"))
    found = tmp_path / "inputs.txt"
    design = libyosys.Design()
    for command in (
        f"read_rtlil {source}",
        "hierarchy -top design",
        "proc",
        "flatten",
        "opt_clean",
        "memory_collect",
        "select -set cone " + " ".join(f"o:{name} %ci*" for name in outputs),
        f"select -write {found} @cone i:* %i",
    ):
        libyosys.Pass.call(design, f"tee -q {command}")
    return {line.split("/")[1] for line in found.read_text().split()}


def matching(ports: set[str], patterns: Sequence[str]) -> set[str]:
    return {port for port in ports if any(fnmatch(port, pattern) for pattern in patterns)}


def test_ingress_depends_on_nothing_of_egress(tmp_path):
    """With any number of ports; state messages to the peer, which carry what replaces credits, are ingress."""
    behind = inputs_behind(LinkLane(LANE), INGRESS, tmp_path)
    assert matching(behind, EGRESS) == set()
    assert {"rx__0__payload", "rx__2__valid", "armed", "requests__0__ready"} <= behind, (
        "the cone is not what it should be"
    )


def test_egress_is_behind_its_own_ports(tmp_path):
    behind = inputs_behind(LinkLane(LANE), ("tx__*", "empty"), tmp_path)
    assert matching(behind, EGRESS) >= {"sends", "tx__0__ready", "tx_messages__1", "arrivals__0"}
    assert matching(behind, ("rx__*", "requests__*")) == set()


def test_a_link_whose_ingress_waits_for_egress_is_caught(tmp_path):
    behind = inputs_behind(WaitingForEgress(LANE), INGRESS, tmp_path)
    assert "tx__0__ready" in matching(behind, EGRESS)
