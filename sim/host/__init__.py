"""What software does to a node: how arrays are tiled, range entries, register writes, and the sequencer's program."""
