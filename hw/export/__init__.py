"""From a component to files that other tools read: SystemVerilog, file lists, descriptions, FuseSoC cores.

:func:`hw.export.exporter.export` writes the node and the blocks of a configuration,
:func:`hw.export.verilog.to_systemverilog` gives one component as text.
"""
