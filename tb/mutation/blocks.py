"""What is mutated, by block: source files, the tests that have to notice, and how many mutants."""

from dataclasses import dataclass

from hw.blocks import paths_of


@dataclass(frozen=True)
class Block:
    """`sources`: patterns of files below the root whose cells are mutated. `tests`: arguments of pytest. `mutants`: how
    many, on the netlist with most simulations (a test file simulates several configurations of a block)."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    mutants: int = 200


_CONTROLLER_TESTS = tuple(
    f"tb/unit/memory_controller/test_controller{name}.py" for name in ("", "_schedule", "_control")
)

BLOCKS = {
    "address_map": Block(paths_of("address_map"), ("tb/unit/test_address_map.py",)),
    "stream_arbiter": Block(paths_of("stream_arbiter"), ("tb/unit/primitives/test_stream_arbiter.py",)),
    "arbiter": Block(
        paths_of("arbiter"),
        ("tb/unit/memory_controller/test_arbiter.py", "tb/unit/memory_controller/test_arbiter_extremes.py"),
    ),
    "intensity": Block(
        paths_of("intensity"),
        ("tb/unit/memory_controller/test_arbiter.py", "tb/unit/memory_controller/test_arbiter_extremes.py"),
    ),
    "memory_controller": Block(paths_of("memory_controller"), _CONTROLLER_TESTS),
    "bank_machines": Block(paths_of("bank_machines"), _CONTROLLER_TESTS),
    "dram_queue": Block(paths_of("dram_queue"), ("tb/unit/memory_controller/test_controller_queue.py",)),
    "near_bank": Block(paths_of("near_bank"), ("tb/unit/near_bank/test_bank_group.py",)),
    "alu": Block(paths_of("alu"), ("tb/unit/near_bank/test_alu.py",)),
    "memory_watch": Block(paths_of("memory_watch"), ("tb/unit/primitives/test_memory_watch.py",), mutants=100),
    "secded": Block(paths_of("secded"), ("tb/unit/primitives/test_secded.py",)),
    "coalescer": Block(paths_of("coalescer"), ("tb/unit/tracker/test_coalescer.py",)),
    # With tags: without them most of the ways' logic leads nowhere.
    "tracker": Block(
        tuple(path for path in paths_of("tracker") if not path.endswith("/direct_select.py")),
        (
            *(f"tb/unit/tracker/test_tracker{name}.py" for name in ("", "_clear", "_backing_store", "_geometry")),
            "-k=not no_tags and not without_tags",
        ),
    ),
    "doorbell": Block(paths_of("doorbell"), ("tb/unit/tracker/test_doorbell.py",)),
    "spill_port": Block(paths_of("spill_port"), ("tb/unit/tracker/test_spill.py",)),
    "trigger_table": Block(paths_of("trigger_table"), ("tb/unit/tracker/test_trigger_table.py",)),
    "dma_engine": Block(
        paths_of("dma_engine"),
        # Those that simulate the preset "paper": most others have a buffer of 64 packets, which they hardly fill.
        (
            "tb/unit/dma/test_dma_engine.py",
            "tb/unit/dma/test_dma_engine_geometry.py",
            "-k=random_blocks or any_geometry or every_size or come_last or large or leaves_its_range or ends"
            " or holds_up or at_once or counted or tall",
        ),
    ),
    "store_packetizer": Block(paths_of("store_packetizer"), ("tb/unit/link/test_packetizer.py",)),
    "memory_clear": Block(paths_of("memory_clear"), ("tb/unit/test_memory_clear.py",)),
    "link_lane": Block(
        paths_of("link_lane"),
        tuple(
            f"tb/unit/link/test_link_{name}.py"
            for name in ("lane", "epochs", "sessions", "times", "slots", "long_times")
        ),
    ),
    "register_file": Block(
        paths_of("register_file"),
        ("tb/unit/registers/test_registers.py", "tb/unit/registers/test_registers_interrupts.py"),
    ),
}

QUICK = ("coalescer", "stream_arbiter", "arbiter")
"""Blocks of the quick sample."""
QUICK_MUTANTS = 5
