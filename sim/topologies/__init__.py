"""How the link ports of GPUs are joined, and which port leads where: wiring and routes, never the order of chunks."""
