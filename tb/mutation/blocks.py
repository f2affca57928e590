"""What is mutated, by block: source files, the tests that have to notice, and how many mutants."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """`sources`: patterns of files below the root whose cells are mutated. `tests`: arguments of pytest. `mutants`: how
    many, on the netlist with most simulations (a test file simulates several configurations of a block)."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    mutants: int = 200


_CONTROLLER_TESTS = tuple(f"tb/unit/test_controller{name}.py" for name in ("", "_schedule", "_control"))

BLOCKS = {
    "address_map": Block(("hw/address_map.py", "hw/range_table.py"), ("tb/unit/test_address_map.py",)),
    "stream_arbiter": Block(("hw/primitives/stream_arbiter.py",), ("tb/unit/test_stream_arbiter.py",)),
    "arbiter": Block(
        ("hw/memory_controller/arbiter.py",), ("tb/unit/test_arbiter.py", "tb/unit/test_arbiter_extremes.py")
    ),
    "intensity": Block(
        ("hw/memory_controller/intensity.py",), ("tb/unit/test_arbiter.py", "tb/unit/test_arbiter_extremes.py")
    ),
    # Arbiter and detector are blocks of their own.
    "memory_controller": Block(
        tuple(f"hw/memory_controller/{name}.py" for name in ("controller", "queues", "refresh")),
        _CONTROLLER_TESTS,
    ),
    "bank_machines": Block(
        tuple(f"hw/memory_controller/{name}.py" for name in ("bank_machine", "dram_queue", "timers")),
        _CONTROLLER_TESTS,
    ),
    "near_bank": Block(("hw/near_bank/bank_group.py",), ("tb/unit/test_bank_group.py",)),
    "alu": Block(("hw/near_bank/alu.py", "hw/near_bank/float_add.py"), ("tb/unit/test_alu.py",)),
    "coalescer": Block(("hw/tracker/coalescer.py",), ("tb/unit/test_coalescer.py",)),
    # With tags: without them most of the ways' logic leads nowhere. Coalescer and spill port are blocks of their own.
    "tracker": Block(
        tuple(
            f"hw/tracker/{name}.py"
            for name in ("bank", "count_stage", "fetch_buffers", "storage", "tile_geometry", "tracker", "way_select")
        ),
        (
            *(f"tb/unit/test_tracker{name}.py" for name in ("", "_clear", "_homes", "_geometry")),
            "-k=not no_tags and not without_tags",
        ),
    ),
    "spill_port": Block(("hw/tracker/spill.py", "hw/tracker/crossbar.py"), ("tb/unit/test_spill.py",)),
    "trigger_table": Block(
        ("hw/tracker/trigger_table.py", "hw/tracker/ready_queue.py"), ("tb/unit/test_trigger_table.py",)
    ),
    "dma_engine": Block(
        ("hw/dma/engine.py", "hw/link/packet_buffer.py"),
        # Those that simulate the preset "paper": most others have a buffer of 64 packets, which they hardly fill.
        ("tb/unit/test_dma_engine.py", "-k=random_blocks or any_geometry or every_size or come_last or large"),
    ),
    "store_packetizer": Block(("hw/link/packetizer.py",), ("tb/unit/test_packetizer.py",)),
    "link_unit": Block(
        ("hw/link/link_unit.py", "hw/link/receiver.py", "hw/link/transmitter.py", "hw/link/check.py"),
        ("tb/unit/test_link.py", "tb/unit/test_link_epochs.py"),
    ),
    "memory_sweep": Block(("hw/memory_sweep.py",), ("tb/unit/test_memory_sweep.py",)),
    "link_lane": Block(
        tuple(
            f"hw/link/{name}.py"
            for name in (
                *("egress", "flit_buffer", "flit_crc", "lane", "packet_writer", "port_ingress", "port_queue"),
                *("port_receiver", "port_sender", "send_table", "slot_bank", "turns"),
            )
        ),
        ("tb/unit/test_link_lane.py",),
    ),
    "register_file": Block(
        ("hw/registers/register_file.py",),
        ("tb/unit/test_registers.py", "tb/unit/test_registers_interrupts.py"),
    ),
}

QUICK = ("coalescer", "stream_arbiter", "arbiter")
"""Blocks of the quick sample."""
QUICK_MUTANTS = 8
