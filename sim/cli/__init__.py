"""The command `t3rtl`: one file a command, which checks what a user wrote and calls :mod:`sim.experiments`."""
