"""Proof that a mutant cannot be noticed in any state that the design reaches from reset, whatever its memories begin
with and whatever its inputs are.

Original and mutant get the same inputs, and an output that is high where any of theirs differ is given to ABC. It looks
for registers that always correspond (van Eijk, IEEE TCAD 19(7), 2000), and then for an invariant (property directed
reachability, Een et al., FMCAD 2011). Registers begin as reset leaves them; each word of a memory begins with a value
of its own, the same in both.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from pyosys import libyosys

from tb.formal.solver import abc_program
from tb.mutation.netlist import Mutant, call, netlist_design, options, put_beside

_ANY_START = r"""
(* techmap_celltype = "$anyinit" *)
module starts_with_any_value (D, Q);
  parameter WIDTH = 1;
  input [WIDTH-1:0] D;
  output [WIDTH-1:0] Q;
  wire [WIDTH-1:0] start;
  (* init = 0 *) wire began;
  (* init = 0 *) wire [WIDTH-1:0] kept;
  \$ff #(.WIDTH(1)) beginning (.D(1'b1), .Q(began));
  \$ff #(.WIDTH(WIDTH)) keeping (.D(D), .Q(kept));
  assign Q = began ? kept : start;
endmodule
"""
"""A register without a value at reset: it starts with that of a wire which nobody drives."""
_APART = (
    "delete t:$check t:$print t:$assert t:$assume t:$cover",
    "setparam -set INIT 1'x t:$mem_v2 r:WR_PORTS>0 %i",
    "memory_map",
    "formalff -clk2ff -ff2anyinit",
)
"""Memories taken apart into registers without a value at reset; those that nobody writes keep what is in them."""
_FLAT = ("flatten", "setundef -undriven -expose")
"""One module, in which wires that nobody drives are inputs: of the same names in original and mutant."""
_DIFFERENCE = (
    "miter -equiv -flatten gold gate difference",
    "hierarchy -top difference",
    "setundef -undriven -zero",
    "opt -full",
    "techmap",
    "opt -fast",
    "dffunmap",
    "simplemap",
    "aigmap",
    "opt_clean",
)
MOST_MEMORY_BITS = 50_000
"""Beyond them the time that a proof has is not even enough to take the memories apart: a Tracker has three times as
many."""
_PROVEN = ("Networks are equivalent", "UNSATISFIABLE")


def _identifier(name: str) -> libyosys.IdString:
    return libyosys.IdString(name if name.startswith("$") else f"\\{name}")


def _beside_memory(design: libyosys.Design, command: str) -> str:
    """`command`; of a fault at the port of a memory, which is taken apart, the same fault in a buffer before or behind
    that port."""
    of = options(command)
    module = design.module(_identifier(of["-module"]))
    cell = module.cell(_identifier(of["-cell"]))
    if not cell.is_mem_cell():
        return command
    port = _identifier(of["-port"])
    there, between = cell.getPort(port), module.addWire(_identifier("$beside_memory"), cell.getPort(port).size())
    ends = (there, between) if cell.input(port) else (between, there)
    module.addPos(_identifier("$buffer"), *(libyosys.SigSpec(end) for end in ends))
    cell.setPort(port, libyosys.SigSpec(between))
    return command.replace(f"-cell {of['-cell']} -port {of['-port']} ", "-cell $buffer -port Y ")


def outputs_are_equal(rtlil: str, mutant: Mutant) -> bool:
    """Whether original and `mutant` are proven to have equal outputs for ever."""
    sizes = re.findall(r"^\s*memory width (\d+) size (\d+)", rtlil, re.MULTILINE)
    if sum(int(width) * int(depth) for width, depth in sizes) > MOST_MEMORY_BITS:
        return False
    with netlist_design(rtlil) as design, tempfile.TemporaryDirectory() as folder:
        command = _beside_memory(design, mutant.command)
        starts, difference = Path(folder) / "starts.v", Path(folder) / "difference.aig"
        starts.write_text(_ANY_START)
        call(design, "hierarchy -auto-top", *_APART, f"techmap -map {starts} t:$anyinit")
        put_beside(design, command, *_FLAT)
        call(design, *_DIFFERENCE, f"write_aiger -zinit {difference}")
        prover = [str(abc_program()), "-c", f"read_aiger {difference}; strash; scorr; dprove"]
        said = subprocess.run(prover, capture_output=True, text=True, check=True).stdout
    return any(words in said for words in _PROVEN)
