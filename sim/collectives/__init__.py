"""Collectives as programs: which regions exist on a rank, when each is complete and where it then goes."""
