"""The register map as SystemRDL 2.0, from which tools make IP-XACT, UVM models and documentation."""

from .fields import Field, Kind, Register
from .map import RegisterParameters, register_map, windows

_ACCESS = {
    Kind.CONSTANT: "sw = r; hw = na;",
    Kind.READ_ONLY: "sw = r; hw = w;",
    Kind.READ_WRITE: "sw = rw; hw = r;",
    Kind.SELF_CLEARING: "sw = w; hw = r; singlepulse;",
    Kind.RW1C: "sw = rw; hw = w; woclr;",
    Kind.COUNTER: "sw = r; hw = w;",
    Kind.WINDOW: "sw = rw; hw = r;",
}
_KEYWORDS = {"field", "reg", "mem", "enum", "signal", "property", "access", "sw", "hw", "reset"}


def _name(name: str) -> str:
    return f"\\{name}" if name in _KEYWORDS else name


def _text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _field(register: Register, field: Field) -> list[str]:
    reset = f" = {field.width}'h{field.reset:x}" if field.kind not in (Kind.READ_ONLY, Kind.COUNTER) else ""
    lines = []
    encoding = ""
    if field.values is not None:
        kind = f"{register.name}_{field.name}_values"
        members = " ".join(f"{member.name} = {field.width}'d{member.value};" for member in field.values)
        lines.append(f"    enum {kind} {{ {members} }};")
        encoding = f" encode = {kind};"
    return [
        *lines,
        f'    field {{ desc = "{_text(field.description)}"; {_ACCESS[field.kind]}{encoding} }} '
        f"{_name(field.name)}[{field.low + field.width - 1}:{field.low}]{reset};",
    ]


def systemrdl(config: RegisterParameters) -> str:
    """The registers of `config` as address map `t3_registers`."""
    lines = [
        "// Registers of a T3 node; made from hw/registers/map.py, do not edit.",
        "addrmap t3_registers {",
        "  default regwidth = 32; default accesswidth = 32;",
    ]
    for register in register_map(config):
        if register.fields[0].kind is Kind.WINDOW:
            continue
        lines.append("  reg {")
        lines.append(f'    desc = "{_text(register.description)}";')
        for field in register.fields:
            lines += _field(register, field)
        lines.append(f"  }} {_name(register.name)} @ 0x{register.address:X};")
    for window in windows(config):
        words = window.name.replace("_", " ")
        lines += ["  regfile {", f'    desc = "An entry of the {words}";']
        for word in window.words:
            value = "field { sw = rw; hw = r; } value[31:0] = 0;"
            lines.append(f"    reg {{ {value} }} {word.name.lower()} @ 0x{4 * word.value:X};")
        step = f"+= 0x{4 * window.entry_words:X}"
        lines.append(f"  }} {window.name}[{window.entries}] @ 0x{window.base:X} {step};")
    lines.append("};")
    return "\n".join(lines) + "\n"
