"""The state of a design as C++ can see it: every flip-flop and every memory, by name.

A simulator is built so that Verilator may optimize across all signals. One in which state is looked at or changed, as a
campaign of faults does, is given a control file that names the variables which hold state, and nothing else: they stay
what they are, where they are, and cost next to nothing, since state has to be kept anyhow.
"""

import re
from collections.abc import Iterator

CONTROL_FILE = "state.vlt"
OWN = "__state"
"""End of the name of a flip-flop that would else be a port."""
_NAME = r"\\\S+ |[\w$]+"
_MODULE = re.compile(r"^module (\S+?)\s*\(.*?^endmodule$", re.MULTILINE | re.DOTALL)
_CLOCKED = re.compile(rf"^\s+({_NAME})(?:\[[^\n]*?\])* <= ", re.MULTILINE)
_REGISTER = re.compile(rf"^  reg (?:signed )?(?:\[\d+:0\] )?({_NAME})( \[\d+:0\])?(?: = [^\n]*)?;$", re.MULTILINE)
_OUTPUT = re.compile(rf"^  output (?:signed )?(?:\[\d+:0\] )?({_NAME});$", re.MULTILINE)


def _plain(name: str) -> str:
    """A name without what escapes it."""
    return name.strip().removeprefix("\\")


def _state(module: str) -> Iterator[str]:
    """Names in the text of a module of what is assigned at an edge of a clock, and of memories."""
    clocked = {_plain(name) for name in _CLOCKED.findall(module)}
    for name, depth in _REGISTER.findall(module):
        if depth or _plain(name) in clocked:
            yield name


def with_own_state(text: str) -> str:
    """SystemVerilog `text`, as of :func:`hw.export.verilog.to_systemverilog`, in which no flip-flop is a port:
    Verilator makes one variable of a port and what it is joined to, which may be another one than the port's."""
    return _MODULE.sub(_own_state, text)


def _own_state(module: re.Match[str]) -> str:
    body = module[0]
    state = {_plain(name) for name in _state(body)}
    own = {name: _plain(name) + OWN for name in _OUTPUT.findall(body) if _plain(name) in state}
    if not own:
        return body
    escaped = [re.escape(name) for name in own if name.startswith("\\")]
    others = [re.escape(name) for name in own if not name.startswith("\\")]
    names = "|".join([*escaped, rf"(?<![\w$\\.])(?:{'|'.join(others)})(?![\w$])"] if others else escaped)

    def renamed(found: re.Match[str]) -> str:
        return own.get(found[0], found[0])

    # In the list of ports, and where it is declared as one, it keeps its name.
    head, end, rest = body.partition(");\n")
    rest = re.sub(rf"^  output [^\n]*$|{names}", renamed, rest, flags=re.MULTILINE).removesuffix("endmodule")
    return head + end + rest + "".join(f"  assign {name} = {mine};\n" for name, mine in own.items()) + "endmodule"


def control_file(text: str, further: tuple[tuple[str, str], ...] = ()) -> str:
    """Verilator's control file that lets C++ find the state of the design `text`, and `further` variables, each as
    module and name."""
    named = [(module[1], _plain(name)) for module in _MODULE.finditer(text) for name in _state(module[0])]
    lines = [f'public_flat_rd -module "{module}" -var "{name}"' for module, name in (*named, *further)]
    return "\n".join(["`verilator_config", *lines]) + "\n"
