"""Short, stable names in Amaranth's RTLIL, and one module where Amaranth wrote several that differ in nothing else.

Amaranth writes every submodule anew (each lane of the ALU, each unit of a bank group) and appends a number to names
that several signals share (`port$12$0`), counted over the whole design. Here numbers are counted within a module, in
order of appearance; modules whose text is then equal, up to their own name, become one. Names are replaced one for one,
so equal text means equal hardware; a signal's own name never changes, only the number behind it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

_MODULE = re.compile(r"^((?:attribute [^\n]*\n)*)module (\\\S+)\n(.*?)^end$", re.MULTILINE | re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\\$][^\s"]+')
_PORT = re.compile(r"\b(input|output|inout) \d+ ")
_LEFT_ALONE = ("attribute", "parameter", "memory")
"""Statements whose names are not signals: a memory is also named in strings."""


@dataclass
class _Module:
    attributes: str
    name: str
    lines: list[str]


def plain_name(name: str) -> str:
    """Amaranth's dotted module name as an identifier that Verilog takes without escaping."""
    return re.sub(r"\W", "_", name.removeprefix("\\").replace(".", "__"))


class _Merger:
    """Gives each module its final name and text, submodules first."""

    def __init__(self, text: str):
        self.modules = {
            name: _Module(attributes, name, body.splitlines()) for attributes, name, body in _MODULE.findall(text)
        }
        self.final: dict[str, str] = {}
        self.renamed: dict[str, dict[str, str]] = {}
        self.by_body: dict[str, str] = {}
        self.texts: dict[str, str] = {}

    def visit(self, name: str, top: bool = False) -> None:
        """Settle module `name` and everything below it."""
        module = self.modules[name]
        for line in module.lines:
            words = line.split(None, 3)
            if words[:1] == ["cell"] and words[1] in self.modules and words[1] not in self.final:
                self.visit(words[1])
        wires, others = self._split(module)
        statements = list(self._statements(others))
        names = self._new_names(wires, others, statements)
        body = [self._wire(attributes, line, names) for attributes, line in wires]
        if not top:
            # Instances name the ports they connect: the order of ports, which differs between equal modules, is free.
            body.sort(key=lambda text: text.split()[-1])
            order = count()
            body = [_PORT.sub(lambda match: f"{match[1]} {next(order)} ", text) for text in body]
        body += [head + _TOKEN.sub(lambda match: names.get(match[0], match[0]), tail) for head, tail in statements]
        key = module.attributes + "\n".join(body)
        if key not in self.by_body:
            plain = plain_name(name)
            while plain in self.texts:
                plain += "_"
            self.by_body[key] = plain
            self.texts[plain] = "\n".join([f"{module.attributes}module \\{plain}", *body, "end\n"])
        self.final[name] = self.by_body[key]
        self.renamed[name] = names

    @staticmethod
    def _split(module: _Module) -> tuple[list[tuple[list[str], str]], list[str]]:
        """Wires, each with its attributes, and the lines of everything else."""
        wires: list[tuple[list[str], str]] = []
        others: list[str] = []
        attributes: list[str] = []
        for line in filter(str.strip, module.lines):
            first = line.split(None, 1)[0]
            if first == "attribute":
                attributes.append(line)
                continue
            if first == "wire":
                wires.append((attributes, line))
            else:
                others += [*attributes, line]
            attributes = []
        return wires, others

    @staticmethod
    def _wire(attributes: list[str], line: str, names: dict[str, str]) -> str:
        declaration, _, name = line.rpartition(" ")
        return "\n".join([*attributes, f"{declaration} {names.get(name, name)}"])

    def _statements(self, lines: list[str]) -> Iterator[tuple[str, str]]:
        """Each line as a part that stays, with the final names of submodules and their ports, and one in which the
        module's own names are still to be replaced."""
        # The statement `cell` opens a block in which the first name behind `connect` is a port of that cell.
        in_cell = False
        ports: dict[str, str] = {}
        for line in lines:
            words = line.split(None, 3)
            if words[0] in _LEFT_ALONE:
                yield line, ""
            elif words[0] == "cell":
                in_cell, kind = True, words[1]
                ports = self.renamed.get(kind, {})
                yield f"  cell \\{self.final[kind]}" if kind in self.final else f"  cell {kind}", f" {words[2]}"
            elif in_cell and words[0] == "connect":
                yield f"    connect {ports.get(words[1], words[1])}", line.split(words[1], 1)[1]
            else:
                in_cell = in_cell and words[0] != "end"
                yield "", line

    @staticmethod
    def _new_names(
        wires: list[tuple[list[str], str]], others: list[str], statements: list[tuple[str, str]]
    ) -> dict[str, str]:
        """New names of the wires, cells and processes with a number, counted in the order in which they are used."""
        declared = dict.fromkeys(line.split()[-1] for _, line in wires)
        declared |= dict.fromkeys(
            words[-1] for words in map(str.split, others) if words[0] in ("cell", "process", "memory")
        )
        memories = {words[-1] for words in map(str.split, others) if words[0] == "memory"}
        numbered = {name for name in declared if name.startswith("\\") and "$" in name} - memories
        taken = set(declared) - numbered
        used = dict.fromkeys(name for _, tail in statements for name in _TOKEN.findall(tail) if name in numbered)
        names: dict[str, str] = {}
        next_number: dict[str, int] = {}
        for old in [*used, *(name for name in declared if name in numbered and name not in used)]:
            # A signal without any name must not become `$1`, which Amaranth calls expressions: Verilog has one `$1`.
            base = old.partition("$")[0] if not old.startswith("\\$") else "\\net"
            new = base
            while new in taken:
                next_number[base] = next_number.get(base, 0) + 1
                new = f"{base}${next_number[base]}"
            taken.add(new)
            names[old] = new
        return names


def merge_modules(text: str) -> str:
    """RTLIL `text` of Amaranth with the first module as the top, rewritten as the module docstring says."""
    merger = _Merger(text)
    merger.visit(next(iter(merger.modules)), top=True)
    return "\n".join(reversed(merger.texts.values()))
