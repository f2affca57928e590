"""What holds state in a node, by the names that the simulator has for it: of which block it is, and of which class.

Names are those of the exported Verilog (`gpu_shell.gpu.node.tracker.bank_0.storage.live`): instances from the top, then
the variable. The hardware is everything in `node`, and the near-bank units in the memory; what is beside them, the
generator of a GEMM, the array of a DRAM, checkers, is its environment.
"""

import re
from dataclasses import dataclass

from hw.config import Configuration
from sim.faults.reference import REGISTERS, programmed

PROTECTED, MEMORY, CONTROL, DATA, CSR = "protected_memory", "memory", "control", "data", "csr"
KINDS = (PROTECTED, MEMORY, CONTROL, DATA, CSR)
_NODE = re.compile(r"gpu_shell\.gpu\.node\.(?:lane_\d+\.)?(.*)")
_NEAR_BANK = re.compile(r"gpu_shell\.gpu\.hbm_\d+\.((?:unit_\d+|alu)\..*)")
_AGAIN = re.compile(r"\$\d+(?=\.|$)")
"""What follows a name that an instance has more than once."""
_PROTECTED = re.compile(
    r"tracker\.bank_\d+\.(storage\.(sets|spills)|triggers\.(masks|entries|(blocks|launches)\.items))"
    r"|controller_\d+\.payload_store\.write_data_memory"
    r"|links\..*\.sectors"
    r"|registers\.(range|send)_table\.words"
    r"|(address_map_\d+|links\.ingress_\d+\.writer|memory_clear|dma)\.table\.\w+"
    r"|tracker\.bank_\d+\.geometry\.(tile_words|thresholds)\.\w+"
    r"|dma\.(bounds\.\w+|ports|row_sectors)"
    r"|(address_map_\d+|dma)\.sends\.words\.\w+"
    r"|links\.egress\.sends\.entries"
    r"|.*_watch\.parities"
    r"|controller_\d+\..*queue\.(memory|marks)|controller_\d+\.(read_return\.readers|.*free_list)\.memory"
    r"|controller_\d+\.(payload_store\.(slots|identities)|bank_machines\.(slots|rows))"
    r"|address_map_\d+\.(payloads|decisions)|packetizer\.queue_\d+_\d+\.(memory|marks)"
    r"|dma\.(queue_\d+|offered|reads_\d+)\.memory|doorbell_commits\.memory"
    r"|links\.egress\.(bank_\d+\.(packets|free\.memory)|(issue|sender)_\d+\.queue\.memory)"
    r"|links\.ingress_\d+\.writer\.headers|tracker\.bank_\d+\.spills\.memory|spill\.answers_\d+\.memory"
)
"""Memories of which every bit that is read counts in check bits or in a parity, with protection of memories."""
_PROTECTED_REGISTERS = re.compile(
    r"(address_map_\d+|links\.ingress_\d+\.writer)\.match\.(valid|base|limit|parity)_\d+"
    r"|links\.egress\.sends\.(kept_ports|parities)"
    r"|tracker\.totals\.(total_\d+|parity)"
    r"|state\.(valid|tracked)(_copy)?"
    r"|controller_\d+\.read_return\.(awaiting|parity)"
)
"""Flip-flops that are words of tables, or of a queue, likewise."""
SECTOR_BITS = 256
"""Bits of a sector: a flip-flop that is so wide holds one."""
KEPT = ("_status", "_record", "_fault_count")
"""Variables of the register file that software reads beside what it writes and what is counted."""


@dataclass(frozen=True)
class Variable:
    """`name` of the simulator; `words` of `bits` each."""

    name: str
    bits: int
    words: int

    @property
    def size(self) -> int:
        """Bits in all."""
        return self.bits * self.words


def block_of(name: str) -> str | None:
    """The block of the node that variable `name` is in, one for all its instances; None for the environment."""
    if _NEAR_BANK.fullmatch(name):
        return "near_bank"
    found = _NODE.fullmatch(name)
    if found is None:
        return None
    instance, inside, _ = found[1].partition(".")
    return re.sub(r"_\d+$", "", instance) if inside else "node"


def kind_of(variable: Variable, config: Configuration) -> str:
    """The class of a variable of the hardware. A memory has words, protected or not. Of the flip-flops, `csr` are those
    that software reads or writes as registers; `data` hold whole sectors, or are stages of the near-bank unit's
    arithmetic; all others are `control`."""
    found = _NODE.fullmatch(_AGAIN.sub("", variable.name))
    inside = found[1] if found is not None and config.protects_memories else ""
    if variable.words > 1:
        in_dram = config.protects_memories and variable.name.endswith(".read_addresses")
        return PROTECTED if in_dram or _PROTECTED.fullmatch(inside) else MEMORY
    if _PROTECTED_REGISTERS.fullmatch(inside):
        return PROTECTED
    scope, _, name = variable.name.rpartition(".")
    if scope == REGISTERS and (name in programmed(config) or name in KEPT or name.startswith("total_")):
        return CSR
    arithmetic = block_of(variable.name) == "near_bank" and ".alu" in scope
    return DATA if variable.bits >= SECTOR_BITS or arithmetic else CONTROL


def by_kind(variables: list[Variable], config: Configuration) -> dict[str, list[Variable]]:
    """The variables of the hardware, by class."""
    found: dict[str, list[Variable]] = {kind: [] for kind in KINDS}
    for variable in variables:
        if block_of(variable.name) is not None:
            found[kind_of(variable, config)].append(variable)
    return found
