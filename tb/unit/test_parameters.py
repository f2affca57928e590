"""Blocks are built from parameter classes of their own: that is enough, the node's Configuration makes no difference,
and what no hardware can be built with is refused by name."""

from importlib import import_module
from pathlib import Path

import pytest
from amaranth.hdl import Fragment

from hw.address_map import AddressMap, AddressMapParameters
from hw.config import Configuration, ConfigurationError
from hw.dma import DmaEngine, DmaParameters
from hw.dram_timing import Timing
from hw.link import LinkLane, LinkParameters, PacketizerParameters, StorePacketizer
from hw.memory_clear import MemoryClear
from hw.memory_controller import ControllerParameters, MemoryController
from hw.near_bank import BankGroupUnit, NearBankParameters
from hw.registers import RegisterFile, RegisterParameters
from hw.tracker import SpillParameters, SpillPort, Tracker, TrackerParameters, TriggerTable
from sim.simulator.sources import modules_reached

ROOT = Path(__file__).parents[2]
PACKAGES = ("address_map", "dma", "link", "memory_controller", "memory_clear", "near_bank", "registers", "tracker")
WIDTHS = {"va_bits": 40, "wg_bits": 12, "count_bits": 14, "epoch_bits": 4, "ranges": 4}
TRACKER = {**WIDTHS, "channels": 2, "tracker_sets": 16, "tracker_ways": 2, "tracker_banks": 2, "trigger_blocks": 32}
BLOCKS: dict[str, tuple] = {
    "address map": (AddressMap, AddressMapParameters, WIDTHS),
    "controller": (
        MemoryController,
        ControllerParameters,
        {**WIDTHS, "channels": 4, "dram_queue_depth": 4, "spill_queue_depth": 1, "timing": Timing(cl=16, faw=20)},
    ),
    "memory clear": (MemoryClear, TrackerParameters, TRACKER),
    "near bank": (BankGroupUnit, NearBankParameters, {"epoch_bits": 4, "timing": Timing(cl=16)}),
    "tracker": (Tracker, TrackerParameters, TRACKER),
    "tracker without tags": (Tracker, TrackerParameters, {**TRACKER, "tracker_tags": False, "tracker_ways": 8}),
    "trigger table": (TriggerTable, TrackerParameters, TRACKER),
    "spill port": (SpillPort, SpillParameters, {**TRACKER, "far_backing_store": True}),
    "dma engine": (DmaEngine, DmaParameters, {**WIDTHS, "channels": 2, "dma_packets": 64}),
    "packetizer": (StorePacketizer, PacketizerParameters, {"channels": 2, "remote_queue_depth": 3, "store_packets": 1}),
    "link lane": (LinkLane, LinkParameters, {**WIDTHS, "channels": 2, "links": 1, "link_receive_packets": 2}),
    "register file": (RegisterFile, RegisterParameters, {**TRACKER, "gpus": 8, "timing": Timing(refresh=False)}),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_needs_its_own_parameters_only(name):
    block, kind, values = BLOCKS[name]
    assert issubclass(Configuration, kind) and kind is not Configuration
    assert Fragment.get(block(kind(**values)), None)


def test_a_block_that_looks_further_is_found():
    class Curious(AddressMap):
        def elaborate(self, platform):
            ways = self._config.tracker_ways  # type: ignore[attr-defined]
            return super().elaborate(platform) if ways else None

    assert Fragment.get(Curious(Configuration()), None)
    with pytest.raises(AttributeError, match="tracker_ways"):
        Fragment.get(Curious(AddressMapParameters()), None)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_block_knows_the_configuration_of_the_node(package):
    reached = modules_reached(f"hw.{package}")
    assert reached
    assert not {ROOT / "hw" / "config.py", ROOT / "hw" / "node.py"} & reached
    assert {ROOT / "hw" / "config.py", *reached} <= modules_reached("hw.node")


@pytest.mark.parametrize("path", sorted((ROOT / "hw").rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_a_package_says_what_it_is_and_names_its_public_parts(path):
    package = import_module(".".join(path.parent.relative_to(ROOT).parts))
    assert package.__doc__
    for name in getattr(package, "__all__", ()):
        assert getattr(package, name).__doc__, name


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (AddressMapParameters, {"ranges": 5}, "ranges must be one of 4, 8, 16, 32, 64; got 5"),
        (AddressMapParameters, {"va_bits": 35}, "va_bits must be from 36 to 57; got 35"),
        (AddressMapParameters, {"epoch_bits": True}, "epoch_bits must be a whole number, got True"),
        (
            ControllerParameters,
            {"dram_queue_depth": 3},
            "dram_queue_depth must be one of 1, 2, 4, 8, 16, 32, 64; got 3",
        ),
        (ControllerParameters, {"timing": 14}, "timing must be a Timing, got 14"),
        (DmaParameters, {"dma_packets": 513}, "dma_packets must be from 1 to 512; got 513"),
        (LinkParameters, {"protection": "most"}, "protection must be one of none, links, all; got most"),
        (LinkParameters, {"links": 16}, "links must be one of 1, 2, 3, .*, 15; got 16"),
        (
            LinkParameters,
            {"link_sequence_bits": 7},
            "link_sequence_bits must be at least .: sequence numbers count twice",
        ),
        (PacketizerParameters, {"remote_queue_depth": 0}, "remote_queue_depth must be from 1 to 1024; got 0"),
        (RegisterParameters, {"gpus": 1}, "gpus must be from 2 to 64; got 1"),
        (SpillParameters, {"far_backing_store": 1}, "far_backing_store must be true or false, got 1"),
        (TrackerParameters, {"tracker_sets": 2048}, "tracker_sets must be at most 1024 with tracker_tags; got 2048"),
        (TrackerParameters, {"tracker_tags": False, "tracker_ways": 4}, "tracker_ways must be 8 without tracker_tags"),
        (TrackerParameters, {"tracker_sets": 4, "tracker_banks": 8}, r"tracker_banks must divide tracker_sets \(4\)"),
        (TrackerParameters, {"tracker_sets": 512, "wg_bits": 9}, "wg_bits must be greater than log2.* = 9, got 9"),
        (Configuration, {"link_bandwidth": 2000}, "link_bandwidth must be at most 1024 GB/s with 1 channels"),
        (Configuration, {"links": 0}, "links must be one of 1, 2, 3, .*, 15; got 0"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(kind, values, message):
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        kind(**values)
