"""Timing of the DRAM, which the memory controller keeps and the near-bank units rely on (JESD235, HBM2)."""

from dataclasses import dataclass, field, fields

from .parameters import ConfigurationError, Parameters


@dataclass(frozen=True)
class Timing:
    """HBM2 timing in controller cycles, command to command (JESD235 names; 1 cycle = 1 ns at 1 GHz).

    `ccdwl` is the column-to-column delay within a bank group after an op-and-store UPDATE (paper section 4.3).
    `refresh` switches all-bank refresh on.
    """

    cl: int = 14
    wl: int = 2
    rcd_rd: int = 14
    rcd_wr: int = 11
    rp: int = 14
    ras: int = 33
    rc: int = 47
    ccd_s: int = 1
    ccd_l: int = 2
    ccdwl: int = 4
    rrd: int = 4
    faw: int = 16
    rtp: int = 4
    rtw: int = 15
    wtr: int = 6
    wtp: int = 15
    rfc: int = 350
    refi: int = 3900
    refresh: bool = True

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "refresh":
                if not isinstance(value, bool):
                    raise ConfigurationError(f"timing.refresh must be true or false, got {value!r}")
            elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
                raise ConfigurationError(f"timing.{item.name} must be a whole number from 1 to 65535, got {value!r}")
        if self.wl < 2:
            raise ConfigurationError(
                f"timing.wl must be at least 2 (the write data memory is read ahead), got {self.wl}"
            )
        if self.ccdwl < 4:
            raise ConfigurationError(
                f"timing.ccdwl must be at least 4 (the near-bank ALU has 4 stages), got {self.ccdwl}"
            )
        if self.refi <= self.rfc:
            raise ConfigurationError(f"timing.refi must be greater than timing.rfc ({self.rfc}), got {self.refi}")


@dataclass(frozen=True)
class DramParameters(Parameters):
    """Of blocks that look at the DRAM's timing."""

    timing: Timing = field(default_factory=Timing)

    def check(self) -> None:
        """Raises :class:`ConfigurationError` when `timing` is none."""
        super().check()
        if not isinstance(self.timing, Timing):
            raise ConfigurationError(f"timing must be a Timing, got {self.timing!r}")
