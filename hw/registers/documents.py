"""Reference documentation and a C header, made from the one description of the registers."""

from amaranth.lib import data

from ..messages import AluOperation, DataType, Mapping
from .counter_addresses import COUNTER_BITS
from .fields import Field, Kind, Register
from .map import RegisterParameters, register_map, windows


def _bits(field: Field) -> str:
    return str(field.low) if field.width == 1 else f"{field.low + field.width - 1}:{field.low}"


def _values(field: Field) -> str:
    if field.values is None:
        return ""
    return ": " + ", ".join(f"{member.value} {member.name}" for member in field.values)


def _reset(field: Field) -> str:
    return (
        f"{field.reset:#x}"
        if field.kind in (Kind.CONSTANT, Kind.READ_WRITE)
        else ("0" if field.kind is not Kind.READ_ONLY else "-")
    )


def _word_fields(layout: object) -> list[tuple[str, str]]:
    if not isinstance(layout, data.Layout):
        return [("31:0", "")]
    return [
        (str(item.offset) if item.width == 1 else f"{item.offset + item.width - 1}:{item.offset}", str(name))
        for name, item in layout
    ]


def markdown(config: RegisterParameters) -> str:
    """The register reference of `config` as Markdown tables."""
    lines = [
        f"# Registers of a node ({config.name})",
        "",
        "AXI4-Lite, 32-bit data, 16-bit byte addresses. An address not listed, and a write to a register with nothing",
        f"to write, is answered with SLVERR. Counters have {COUNTER_BITS} bits; read the low half first, which latches",
        "the high half. Access: constant; ro read-only; rw read-write; sc (self-clearing) write 1 to act, reads 0;",
        "rw1c write 1 to clear; counter and window as described.",
        "",
        "| offset | register | bits | field | access | reset | description |",
        "|---|---|---|---|---|---|---|",
    ]
    for register in register_map(config):
        for field in register.fields:
            lines.append(
                f"| 0x{register.address:04X} | `{register.name}` | {_bits(field)} | {field.name} | {field.kind.value} "
                f"| {_reset(field)} | {field.description}{_values(field)} |"
            )
    for window in windows(config):
        lines += [
            "",
            f"## {window.name.replace('_', ' ').capitalize()}",
            "",
            f"Entry i (0 to {window.entries - 1}), word w: {window.base:#x} + i * {4 * window.entry_words:#x} + w * 4.",
            f"{window.note}The meaning of the fields is in `hw/{window.name}.py`.",
            "",
            "| word | name | bits | field |",
            "|---|---|---|---|",
        ]
        for word in window.words:
            fields = _word_fields(window.layouts.get(word))
            lines += [f"| {word.value} | `{word.name}` | {bits} | {name} |" for bits, name in fields]
    return "\n".join(lines) + "\n"


def _define(name: str, value: int) -> str:
    return f"#define {name} 0x{value:X}u"


def _register_defines(register: Register) -> list[str]:
    prefix = f"T3_{register.name.upper()}"
    lines = [f"/* {register.description} */", _define(f"{prefix}_OFFSET", register.address)]
    for field in register.fields:
        name = f"{prefix}_{field.name.upper()}" if len(register.fields) > 1 else prefix
        if len(register.fields) > 1:
            lines += [_define(f"{name}_MASK", field.mask), _define(f"{name}_SHIFT", field.low)]
        if field.values is not None:
            lines += [_define(f"{name}_VALUE_{member.name}", member.value) for member in field.values]
    return lines


def _word_defines(prefix: str, number: int, layout: object) -> list[str]:
    lines = [_define(f"{prefix}_WORD", number)]
    if isinstance(layout, data.Layout):
        for name, item in layout:
            lines += [
                _define(f"{prefix}_{str(name).upper()}_MASK", ((1 << item.width) - 1) << item.offset),
                _define(f"{prefix}_{str(name).upper()}_SHIFT", item.offset),
            ]
    return lines


def c_header(config: RegisterParameters) -> str:
    """A C header with every offset, field and enumerated value of `config`."""
    lines = [
        f"/* Registers of a T3 node ({config.name}); made from hw/registers/map.py, do not edit. */",
        "#ifndef T3_REGISTERS_H",
        "#define T3_REGISTERS_H",
        "",
    ]
    for register in register_map(config):
        lines += _register_defines(register)
    for window in windows(config):
        prefix = f"T3_{window.name.removesuffix('_table').upper()}"
        lines += [
            "",
            f"/* {window.name.replace('_', ' ').capitalize()}: byte offset of entry i, and the words of an entry. */",
            f"#define {prefix}_OFFSET(i) ({window.base:#x}u + (i) * {4 * window.entry_words:#x}u)",
            _define(f"{prefix}_ENTRIES", window.entries),
        ]
        for word in window.words:
            lines += _word_defines(f"{prefix}_{word.name}", word.value, window.layouts.get(word))
    for values in (Mapping, AluOperation, DataType):
        prefix = {Mapping: "MAPPING", AluOperation: "ALU", DataType: "DTYPE"}[values]
        lines += [_define(f"T3_{prefix}_{member.name}", member.value) for member in values]
    lines += ["", "#endif"]
    return "\n".join(lines) + "\n"
