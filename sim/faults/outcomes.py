"""What came of an injection, and what a sample of them says of all."""

from dataclasses import asdict, dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

MASKED, CORRECTED, DETECTED, SILENT, HANG = OUTCOMES = ("masked", "corrected", "detected", "silent", "hang")
CONFIDENCE = 0.99


@dataclass(frozen=True)
class Facts:
    """What the simulator saw, in its order (`sim/models/fault_server.h`).

    `finished`: both collectives came to their end in time; `fired`: what was to go wrong on a wire has; `harmed`: the
    memory was written outside of what is modelled, or given a command too early; `reported`: interrupts (1), refused
    reads (2), refused register accesses (4), dead links (8), and `late` those in the collective after an abort;
    `wrong_sectors` of the results and `wrong_registers`; `converged`: the cycle in which all state was as without the
    fault, 0: never; `end`: the cycle in which it was looked at last; `drained`: cycles from an abort until nothing of
    its epoch was left; `corrected`: what counters of corrections say.
    """

    finished: bool
    fired: bool
    harmed: bool
    reported: int
    late: int
    wrong_sectors: int
    wrong_registers: int
    converged: int
    end: int
    drained: int
    corrected: int

    @classmethod
    def of_line(cls, line: str) -> "Facts":
        """As the simulator prints them."""
        numbers = list(map(int, line.split()))
        return cls(*map(bool, numbers[:3]), *numbers[3:])

    def to_json(self) -> dict[str, Any]:
        """As they are kept."""
        return asdict(self)


def outcome(facts: Facts, aborted: bool = False) -> str:
    """One of :data:`OUTCOMES`.

    What hardware reports is `detected`, whatever comes of it. Without a report: no end is a `hang`; a wrong result, a
    memory written where nothing belongs, or a register that says something else than it should, is `silent`; the rest
    is `corrected` if counters say so, and `masked` if not. An abort is reported by its nature: there the collective
    after it counts, which ends and is right, or not.
    """
    wrong = facts.wrong_sectors or facts.wrong_registers or facts.harmed
    if facts.reported and not aborted:
        return DETECTED
    if not facts.finished:
        return HANG
    if wrong:
        return SILENT
    if facts.reported:
        return DETECTED
    return CORRECTED if facts.corrected > 0 else MASKED


def interval(count: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's interval for the share of which `count` of `total` were seen (E. B. Wilson, Probable inference, the law
    of succession, and statistical inference, J. Am. Stat. Assoc. 22, 1927). Where none or all were, there is nothing
    beyond them to leave out, and the bound is the exact one-sided one (Clopper and Pearson, Biometrika 26, 1934)."""
    if not total:
        return 0.0, 1.0
    if count in (0, total):
        reach = 1 - (1 - confidence) ** (1 / total)
        return (0.0, reach) if count == 0 else (1 - reach, 1.0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = count / total
    middle = share + z * z / (2 * total)
    reach = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return (middle - reach) / scale, (middle + reach) / scale


def sample_size(population: int, margin: float, confidence: float = CONFIDENCE) -> int:
    """How many of `population` possible faults to inject for a share within `margin`, whatever it is (R. Leveugle, A.
    Calvez, P. Maistri, P. Vanhauwaert, Statistical fault injection: quantified error and confidence, DATE 2009)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return -int(-population // (1 + margin**2 * (population - 1) / (z * z * 0.25)))


def margin(population: int, injections: int, confidence: float = CONFIDENCE) -> float:
    """The same formula the other way round: the margin that so many injections give."""
    if injections >= population:
        return 0.0
    if not injections:
        return 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return z * sqrt(0.25 / injections * (population - injections) / (population - 1))
