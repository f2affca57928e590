"""The registers of a node, written down once: AXI4-Lite slave, documents and C header are made from one map."""

from .documents import c_header, markdown
from .map import RegisterParameters, register_map
from .register_file import RegisterFile
from .systemrdl import systemrdl

__all__ = ["RegisterFile", "RegisterParameters", "c_header", "markdown", "register_map", "systemrdl"]
