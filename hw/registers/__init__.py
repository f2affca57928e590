"""The register map, written down once, and what is made of it: the register file, documents, SystemRDL."""
