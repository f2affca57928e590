"""Builds and runs a compiled system: recipes, Verilator, sessions, memory images, waves."""
