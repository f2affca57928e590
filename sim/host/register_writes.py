"""Register writes, `(byte address, value)`, in the order in which whoever holds the bus must make them."""

from collections.abc import Mapping, Sequence
from enum import Enum
from math import ceil

from hw.config import INTERLEAVE_SECTORS, SECTOR_BYTES, Configuration
from hw.messages import Policy, Threshold
from hw.range_table import ENTRY_WORDS, Word
from hw.registers.fields import Kind
from hw.registers.map import PEERS_PER_REGISTER, SEND_BASE, WINDOW_BASE, find_register
from hw.send_table import SEND_ENTRY_WORDS, SendWord
from sim.host.limits import DriverError, between

Write = tuple[int, int]
LONGEST_LAG = 512
"""Cycles communication falls behind its pace before it goes first: the longer, the more of it finds the DRAM rows that
it has opened itself; from 2,000 on links run dry (DECISIONS 18)."""


def range_writes(config: Configuration, index: int, words: Mapping[Word, int]) -> list[Write]:
    """Register writes that program range `index`: it is invalid until its last word, CONTROL, is written."""
    between("range index", index, 0, config.ranges - 1)
    for word, value in words.items():
        between(word.name, value, 0, 0xFFFF_FFFF)
    entry = WINDOW_BASE + index * 4 * ENTRY_WORDS
    control = entry + 4 * Word.CONTROL
    body = [(entry + 4 * word, value) for word, value in words.items() if word is not Word.CONTROL]
    return [(control, 0), *body, (control, words[Word.CONTROL])]


def retire_writes(config: Configuration, first: int) -> list[Write]:
    """Writes that make the ranges from `first` on invalid: what a longer program before left there matches no access,
    and the node does not wait for it."""
    between("range index", first, 0, config.ranges)
    return [(WINDOW_BASE + 4 * (index * ENTRY_WORDS + Word.CONTROL), 0) for index in range(first, config.ranges)]


def send_writes(config: Configuration, index: int, words: Mapping[SendWord, int]) -> list[Write]:
    """Register writes that program send `index`, to be made before those of a range that names it."""
    between("send index", index, 0, config.sends - 1)
    for word, value in words.items():
        between(word.name, value, 0, 0xFFFF_FFFF)
    entry = SEND_BASE + index * 4 * SEND_ENTRY_WORDS
    return [(entry + 4 * word, value) for word, value in words.items()]


def link_writes(config: Configuration, sources: Sequence[int | None], shared: bool = False) -> list[Write]:
    """Writes that say whose packets the link ports take, by port (None: everybody's; ports behind the last one are
    joined to nothing), and the times for links of `link_latency`, where reset's are too short. `shared`: what a port
    sends may wait on the way for all that the other ports of its receiver can take."""
    between("link ports of the topology", len(sources), 0, config.links)
    values: dict[str, dict[str, int]] = {}
    for port, rank in enumerate(sources):
        if rank is not None:
            fields = {f"rank_{port}": rank, f"checked_{port}": 1}
            values.setdefault(f"link_peers_{port // PEERS_PER_REGISTER}", {}).update(fields)
    writes = [register_write(config, register, **fields) for register, fields in values.items()]
    round_trip = 2 * config.link_latency
    flits = len(sources) * config.link_receive_packets * INTERLEAVE_SECTORS if shared else 0
    queued = ceil(flits * SECTOR_BYTES / config.lane_bytes_per_cycle)
    for register, least in (
        ("link_silence", round_trip),
        ("link_retry", 2 * round_trip + queued),
        ("link_dead", 4 * round_trip),
    ):
        if least > find_register(config, register).reset:
            writes.append(register_write(config, register, **{register: least}))
    return writes


def slow_link_writes(config: Configuration, slowest: float) -> list[Write]:
    """Writes that give packets time on links of `slowest` bytes a cycle (0: there are none): a port sends again when it
    has got no acknowledgement in the time of two packets and a round trip, if that is longer than what reset gives."""
    lane = slowest / config.lanes
    timeout = ceil(2 * INTERLEAVE_SECTORS * SECTOR_BYTES / lane) + 4 * config.link_latency if lane else 0
    return [register_write(config, "link_retry", link_retry=timeout)] if timeout > _retry(config) else []


def _retry(config: Configuration) -> int:
    """Cycles without an acknowledgement after which a port sends again, as :func:`link_writes` leaves it."""
    return max(4 * config.link_latency, find_register(config, "link_retry").reset)


def doorbell_writes(config: Configuration, index: int, first: int, count: int) -> list[Write]:
    """Register writes that complete every WF tile of workgroups `first` to `first + count` of range `index`."""
    between("range index", index, 0, config.ranges - 1)
    return [
        register_write(config, "doorbell_workgroups", first=first, count=count),
        register_write(config, "doorbell", range=index, ring=1),
    ]


def register_write(config: Configuration, register: str, **values: int | Enum) -> Write:
    """The write that sets fields of a register; fields not named take their reset value, or do not act.

    A register of one field is set as `register_write(config, "rank", rank=2)`. Raises :class:`DriverError`.
    """
    try:
        description = find_register(config, register)
        value = {field.name: field.reset for field in description.fields if field.kind is Kind.READ_WRITE}
        for name, item in values.items():
            field = description.field(name)
            number = item.value if isinstance(item, Enum) else int(item)
            between(f"{register}.{name}", number, 0, (1 << field.width) - 1)
            value[name] = number
    except KeyError as error:
        raise DriverError(error.args[0]) from error
    return description.address, sum(number << description.field(name).low for name, number in value.items())


def window_write(config: Configuration, va: int) -> Write:
    """The write that has every access refused which is not to the memory in which sector `va` lies: the DRAM tells
    1 GiB a channel apart."""
    high = va >> config.va_sector_bits - config.window_bits
    return register_write(config, "memory_window", high=high, checked=1)


def wide_writes(config: Configuration, name: str, value: int) -> list[Write]:
    """Both halves of a value kept in `<name>_low` and `<name>_high`."""
    return [
        register_write(config, f"{name}_{half}", **{f"{name}_{half}": part})
        for half, part in (("low", value & 0xFFFF_FFFF), ("high", value >> 32))
    ]


def arbiter_writes(
    config: Configuration,
    policy: Policy = Policy.MCA,
    threshold: Threshold = Threshold.AUTO,
    starvation_limit: int | None = None,
    refresh: bool | None = None,
    ports: int = 1,
) -> list[Write]:
    """Writes that choose the arbitration; None keeps what reset gives. PACED is to keep up with `ports` links, see
    :func:`pace_writes`."""
    values: dict[str, int | Enum] = {"policy": policy, "threshold": threshold}
    if refresh is not None:
        values["refresh"] = int(refresh)
    writes = [register_write(config, "arbiter", **values)]
    if starvation_limit is not None:
        writes.append(register_write(config, "starvation_limit", starvation_limit=starvation_limit))
    return [*writes, *pace_writes(config, ports)] if policy is Policy.PACED else writes


def pace_writes(config: Configuration, ports: int = 1) -> list[Write]:
    """Writes that have PACED keep up with `ports` links at full rate in both directions: a sector that arrives, and the
    read of one that leaves, in the time of a sector on the link. Communication may fall behind by an eighth of what the
    DMA engine's packets bridge, at most by :data:`LONGEST_LAG`. The channels of a lane share that, the less the more
    ports there are to a channel: those of one block are read in turn, so that each waits for the lag of those before
    it, but blocks of several ports are read beside each other."""
    between("ports", ports, 1, config.links)
    sector = SECTOR_BYTES * config.channels / config.link_bytes_per_cycle
    channels = config.lane_channels
    lag = min(LONGEST_LAG, int(config.dma_packets * INTERLEAVE_SECTORS * sector / ports / 8))
    shared = min(lag, lag // channels * max(1, ports // channels))
    return [
        register_write(config, "pace", pace=min(255, max(1, int(sector / 2 / ports)))),
        register_write(config, "pace_lag", pace_lag=shared),
    ]


def arm_writes(config: Configuration, initialised: bool = False) -> list[Write]:
    """The write that starts the programmed epoch; `initialised`: memory holds no tag and no record from before the
    reset, so the node need not sweep it."""
    return [register_write(config, "control", arm=1, initialised=int(initialised))]
