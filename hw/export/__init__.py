"""From a component to files that other tools read: SystemVerilog, file lists, descriptions, FuseSoC cores."""
