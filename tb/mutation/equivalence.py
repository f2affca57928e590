"""Proof that a mutant cannot be noticed: what it changes leads nowhere, or its module, or else the whole flattened
design, equals the original's in every state.

yosys matches the registers of the two by name and proves by SAT that equal registers and inputs give equal next
registers and outputs, or shows it by induction over a few cycles. In the first proof submodules stay as they are, with
equal inputs to be proven, and every output counts: what is proven holds wherever the module is used. The second finds
faults in logic that leads nowhere. In both, a memory equals another only if its inputs are the same signals; in a third
proof the module's memories are taken apart into registers. The fourth knows which states the flattened design reaches
(:mod:`tb.mutation.reachable`). A mutant that the surroundings of the design hide by what they never do is not proven.
"""

import multiprocessing
import os
import re
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from pyosys import libyosys

from tb.mutation.netlist import Mutant, call, netlist_design, put_beside
from tb.mutation.reachable import outputs_are_equal

CPU_SECONDS, REACHABLE_CPU_SECONDS = 30, 300
"""What a proof may take, and each of the programs of the last one; a longer one counts as none."""


_PROOF = (
    # Registers bit by bit: one that leads nowhere is taken away and needs not be equal.
    "simplemap gold/t:$*dff* gate/t:$*dff*",
    "opt_clean -purge gold gate",
    "setundef -undriven -zero gold gate",
    # What is left unnamed needs not be equal either: only registers, ports and the pins of submodules do.
    "rename -hide gold/w:* gold/t:$_*DFF* %x1:+[Q] %d",
    "equiv_make gold gate equiv",
    "hierarchy -top equiv",
    "opt_clean",
    "equiv_struct",
    "equiv_simple",
    "equiv_induct -seq 4",
    "equiv_status -assert",
)
"""Commands of yosys that prove module `gate` equal to `gold`, or raise."""
Proof = Callable[[str, Mutant], bool]


def _marked(design: libyosys.Design) -> set[int]:
    """Numbers of the mutants whose inverters are in the design."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.il"
        call(design, "select a:mutant", f"write_rtlil -selected {found}", "select -clear")
        return {int(number) for number in re.findall(r"^ *attribute \\mutant (\d+)$", found.read_text(), re.MULTILINE)}


def lead_nowhere(rtlil: str, name: str, mutants: Sequence[Mutant]) -> set[int]:
    """Numbers of the mutants whose bit reaches no output of module `name`, through whatever registers and modules.

    All are put into one netlist as inverters, each with its number; those that are taken away with what is unused,
    bit by bit, have nobody who reads them.
    """
    with netlist_design(rtlil) as design:
        call(design, f"hierarchy -top {name}")
        for mutant in mutants:
            inverted = mutant.command.replace(f"-mode {mutant.mode}", "-mode inv")
            call(design, inverted, f"setattr -set mutant {mutant.number} c:$auto$mutate* a:mutant %d")
        put_in = _marked(design)
        call(design, "pmuxtree", "simplemap t:* a:mutant %d", "opt_clean", "flatten", "opt_clean -purge")
        return put_in - _marked(design)


def _attempt(proof: Proof, seconds: int, folder: str, rtlil: str, mutant: Mutant) -> None:
    os.setsid()
    tempfile.tempdir = folder
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
        os.dup2(nothing.fileno(), sys.stderr.fileno())
    try:
        os._exit(0 if proof(rtlil, mutant) else 1)
    except BaseException:  # yosys gives up by raising or exiting
        os._exit(1)


def _module_is_equal(rtlil: str, mutant: Mutant, *first: str) -> bool:
    module = mutant.command.split("-module ")[1].split()[0]
    with netlist_design(rtlil) as design:
        call(design, f"copy {module} gold", mutant.command, f"rename {module} gate", *first, *_PROOF)
    return True


def _module_is_equal_with_memories(rtlil: str, mutant: Mutant) -> bool:
    return _module_is_equal(rtlil, mutant, "memory_map gold gate")


def _design_is_equal(rtlil: str, mutant: Mutant) -> bool:
    with netlist_design(rtlil) as design:
        put_beside(design, mutant.command, "hierarchy -auto-top", "flatten")
        call(design, *_PROOF)
    return True


def is_equivalent(rtlil: str, mutant: Mutant) -> bool:
    """Whether `mutant` of the netlist is proven to change nothing, in processes of their own with a time limit each."""
    proofs: list[tuple[Proof, int]] = [
        (_module_is_equal, CPU_SECONDS),
        (_design_is_equal, CPU_SECONDS),
        (_module_is_equal_with_memories, CPU_SECONDS),
        (outputs_are_equal, REACHABLE_CPU_SECONDS),
    ]
    for proof, seconds in proofs:
        # A proof that its time limit ends cannot take away its files.
        with tempfile.TemporaryDirectory() as folder:
            arguments = (proof, seconds, folder, rtlil, mutant)
            process = multiprocessing.get_context("fork").Process(target=_attempt, args=arguments)
            process.start()
            process.join(seconds * 20)
            if process.is_alive():
                process.kill()
                process.join()
        if process.exitcode == 0:
            return True
    return False
