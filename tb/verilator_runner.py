"""Verilator as cocotb runs it."""

from pathlib import Path

import cocotb_tools.config
from cocotb_tools.runner import Verilator

from sim.simulator.plain_paths import linked


class FastVerilator(Verilator):
    """cocotb's Verilator runner without `--public-flat-rw`, which doubles build time and slows simulation down; it
    works in folders of any name."""

    def _build_command(self) -> list[list[str]]:
        own = Path(cocotb_tools.config.libs_dir).parent
        return [
            [word.replace(str(own), str(linked(own))) for word in command if word != "--public-flat-rw"]
            for command in super()._build_command()
        ]
