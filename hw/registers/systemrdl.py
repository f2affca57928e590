"""The register map as SystemRDL 2.0, from which tools make IP-XACT, UVM models and documentation."""

from ..range_table import ENTRY_WORDS, Word
from ..send_table import SEND_ENTRY_WORDS, SendWord
from .map import SEND_BASE, WINDOW_BASE, Field, Kind, Register, RegisterParameters, register_map

_ACCESS = {
    Kind.CONSTANT: "sw = r; hw = na;",
    Kind.READ_ONLY: "sw = r; hw = w;",
    Kind.READ_WRITE: "sw = rw; hw = r;",
    Kind.PULSE: "sw = w; hw = r; singlepulse;",
    Kind.CLEARABLE: "sw = rw; hw = w; woclr;",
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
    lines += [
        "  regfile {",
        '    desc = "An entry of the range table";',
        *(
            f"    reg {{ field {{ sw = rw; hw = r; }} value[31:0] = 0; }} {word.name.lower()} @ 0x{4 * word.value:X};"
            for word in Word
        ),
        f"  }} range_table[{config.ranges}] @ 0x{WINDOW_BASE:X} += 0x{4 * ENTRY_WORDS:X};",
        "  regfile {",
        '    desc = "An entry of the send table";',
        *(
            f"    reg {{ field {{ sw = rw; hw = r; }} value[31:0] = 0; }} {word.name.lower()} @ 0x{4 * word.value:X};"
            for word in SendWord
        ),
        f"  }} send_table[{config.sends}] @ 0x{SEND_BASE:X} += 0x{4 * SEND_ENTRY_WORDS:X};",
        "};",
    ]
    return "\n".join(lines) + "\n"
