"""What software does to a node: tilings of arrays, range entries, register writes, arming."""
