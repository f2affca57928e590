"""Small systems of their own: one DRAM channel with a request trace, one ALU with test vectors."""
