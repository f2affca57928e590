"""Proof that a mutant cannot be noticed: its module equals the original's in every state.

yosys matches the registers of the two by name and proves by SAT that equal registers and inputs give equal next
registers and outputs, or shows it by induction over a few cycles. Submodules stay as they are, with equal inputs to be
proven. What is proven so holds wherever the module is used; a mutant that only the surroundings hide is not proven.
"""

import multiprocessing
import os
import resource
import sys
from pathlib import Path

from tb.mutation.netlist import Mutant, call, netlist_design

CPU_SECONDS = 60
"""What a proof may take; a longer one counts as none."""


def _attempt(rtlil: str, mutant: Mutant) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
        os.dup2(nothing.fileno(), sys.stderr.fileno())
    try:
        os._exit(0 if _equal(rtlil, mutant) else 1)
    except BaseException:  # yosys gives up by raising or exiting
        os._exit(1)


def _equal(rtlil: str, mutant: Mutant) -> bool:
    module = mutant.command.split("-module ")[1].split()[0]
    with netlist_design(rtlil) as design:
        call(
            design,
            f"copy {module} gold",
            mutant.command,
            f"rename {module} gate",
            "memory_map gold gate",
            "opt_clean gold gate",
            # What is left unnamed needs not be equal: only registers, ports and the pins of submodules do.
            "rename -hide gold/w:* gold/t:$*dff* %x1:+[Q] %d",
            "equiv_make gold gate equiv",
            "hierarchy -top equiv",
            "opt_clean",
            "equiv_struct",
            "equiv_simple",
            "equiv_induct -seq 4",
            "equiv_status -assert",
        )
    return True


def is_equivalent(rtlil: str, mutant: Mutant) -> bool:
    """Whether `mutant` of the netlist is proven to change nothing, in a process of its own with a time limit."""
    process = multiprocessing.get_context("fork").Process(target=_attempt, args=(rtlil, mutant))
    process.start()
    process.join(CPU_SECONDS * 20)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode == 0
