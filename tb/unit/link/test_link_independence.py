"""Ingress of the link does not depend on egress: there is no path at all from what goes out to what comes in.

Shown on the netlist, for every state and input: the cone of logic and registers behind the ports of ingress holds no
port of egress. So a stuck outgoing link can hold up neither reception nor its credits (SPEC's deadlock rule).
"""

from collections.abc import Sequence
from fnmatch import fnmatch

from amaranth.lib import wiring
from hw.link.link_unit import LinkUnit
from pyosys import libyosys

from hw.config import Configuration
from hw.export.verilog import to_rtlil
from hw.link.lane import LinkLane
from hw.link.wire import LaneParameters
from tb.formal.link import waiting_for_egress

CONFIG = Configuration(link_receive_packets=2, ranges=4, channels=2, links=2)
INGRESS = ("requests__*", "rx__*__ready", "rx_control__*", "faults__*")
EGRESS = ("dma_packets__*", "store_packets__*", "route", "tx__*__ready", "tx_control__*")
LANE = LaneParameters(CONFIG, links=3, dma_slots=4, store_slots=4, sends=4, receive_packets=2)
LANE_INGRESS = ("requests__*", "rx__*__ready", "rx_messages__*", "faults__*")
LANE_EGRESS = ("sources__*", "sends", "arrivals__*", "discard", "tx__*__ready", "tx_messages__*")


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
    behind = inputs_behind(LinkUnit(CONFIG), INGRESS, tmp_path)
    assert matching(behind, EGRESS) == set()
    assert {"rx__0__payload", "rx__1__valid", "arm", "requests__0__ready"} <= behind, (
        "the cone is not what it should be"
    )


def test_egress_is_behind_its_own_ports(tmp_path):
    behind = inputs_behind(LinkUnit(CONFIG), ("tx__*", "dma_packets__ready"), tmp_path)
    assert matching(behind, EGRESS) >= {"dma_packets__payload", "route", "tx__0__ready", "tx_control__1"}


def test_a_link_whose_ingress_waits_for_egress_is_caught(tmp_path):
    behind = inputs_behind(waiting_for_egress(CONFIG), INGRESS, tmp_path)
    assert "tx__0__ready" in matching(behind, EGRESS)


def test_ingress_of_a_lane_depends_on_nothing_of_egress(tmp_path):
    """With any number of ports; state messages to the peer, which carry what replaces credits, are ingress."""
    behind = inputs_behind(LinkLane(LANE), LANE_INGRESS, tmp_path)
    assert matching(behind, LANE_EGRESS) == set()
    assert {"rx__0__payload", "rx__2__valid", "armed", "requests__0__ready"} <= behind, (
        "the cone is not what it should be"
    )


def test_egress_of_a_lane_is_behind_its_own_ports(tmp_path):
    behind = inputs_behind(LinkLane(LANE), ("tx__*", "empty"), tmp_path)
    assert matching(behind, LANE_EGRESS) >= {"sends", "discard", "tx__0__ready", "tx_messages__1", "arrivals__0"}
    assert matching(behind, ("rx__*", "requests__*")) == set()
