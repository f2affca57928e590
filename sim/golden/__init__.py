"""What a collective must leave in memory, in numpy: imports nothing of `hw` and nothing else of `sim`."""
