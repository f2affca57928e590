"""Links of sizes that a solver can look through."""

from dataclasses import dataclass

from hw.link.parameters import LinkParameters


@dataclass(frozen=True)
class FewSends(LinkParameters):
    """A send table of two entries."""

    @property
    def sends(self) -> int:
        """Entries of the send table."""
        return 2
