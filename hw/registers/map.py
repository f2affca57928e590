"""The register map of a node, written down once: RTL decode, reference table and C header are made from it.

Addresses are byte offsets from the node's AXI4-Lite base; every register is 32 bits. The layout of addresses is the
same in every configuration, only field widths differ. Units are cycles, sectors (32 B) or counts, as each description
says. What a register is, is in `fields.py`; the counters are those of `counter_addresses.py`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from ..abort import WATCHDOG_BITS
from ..dram_timing import DramParameters
from ..link.parameters import LinkParameters
from ..link.port_sender import TIMER_BITS
from ..memory_errors import SCRUB_BITS
from ..messages import Access, Fault, Policy, Threshold
from ..parameters import between
from ..protection import ADDRESS_BITS as MEMORY_ADDRESS_BITS
from ..protection import ProtectedMemory
from ..range_table import ENTRY_WORDS, WORDS, Word
from ..send_table import SEND_ENTRY_WORDS, SEND_WORDS, SendWord
from ..tracker.parameters import TrackerParameters
from .counter_addresses import counter_registers
from .fields import Field, Kind, Register, Window

ADDRESS_BITS = 16
WINDOW_BASE = 0x4000
"""First range-table entry; entry i, word w is at WINDOW_BASE + i * 0x80 + w * 4."""
SEND_BASE = 0x6000
"""First send; send i, word w is at SEND_BASE + i * 0x10 + w * 4."""
PEERS_PER_REGISTER = 4
IDENTIFICATION = 0x5433_0003
"""`T3` in ASCII and the version of this map."""


@dataclass(frozen=True)
class RegisterParameters(DramParameters, TrackerParameters, LinkParameters):
    """Of the register file: what software can read of a build. `name` heads the documents; `gpus`: made for so many."""

    name: str = "custom"
    gpus: int = between(4, 2, 64)


@cache
def register_map(config: RegisterParameters) -> tuple[Register, ...]:
    """Every register of a node of `config`, in address order; the last two are the range table and the send table."""
    return (
        *_from(0x00, _build(config)),
        *_from(0x20, [_single("rank", 6, Kind.READ_WRITE, "this GPU's number in the system", locks=True)]),
        # 0x24 and 0x28 were registers of an older version.
        *_from(0x2C, _epoch(config)),
        *_from(0x38, _arbiter(config)),
        *_from(0x50, _spill_base(config)),
        *_from(0x58, _done(config)),
        *_from(0x64, _pace()),
        *_from(0x6C, _doorbell(config)),
        *_from(0x80, _interrupts()),
        *_from(0x88, _faults(config)),
        *_from(0xA0, _links(config)),
        *_from(0xC0, _aborts(config)),
        *_from(0xC8, _memory(config)),
        *_from(0xD0, _protected_memories() if config.protects_memories else ()),
        *counter_registers(config.links, config.protects_memories),
        *_windows(config),
    )


def _from(address: int, registers: Iterable[Register]) -> Iterator[Register]:
    """`registers` one after the other, the first at `address`."""
    for number, register in enumerate(registers):
        yield replace(register, address=address + 4 * number)


def _register(name: str, description: str, *fields: Field, locks: bool = False) -> Register:
    """A register, to be placed by :func:`_from`."""
    return Register(name, 0, fields, description, locks=locks)


def _single(name: str, width: int, kind: Kind, description: str, reset: int = 0, locks: bool = False) -> Register:
    """One with a single field, of its own name."""
    return _register(name, description, Field(name, 0, width, kind, description, reset), locks=locks)


def _constant(name: str, low: int, width: int, value: int, description: str) -> Field:
    return Field(name, low, width, Kind.CONSTANT, description, value)


def _build(config: RegisterParameters) -> Iterator[Register]:
    """What this build is."""
    yield _single(
        "identification", 32, Kind.CONSTANT, "`T3` in ASCII (31:16) and the version of this map", IDENTIFICATION
    )
    yield _register(
        "system_parameters",
        "sizes of this build",
        _constant("channels", 0, 6, config.channels, "memory channels"),
        _constant("ranges", 8, 7, config.ranges, "entries of the range table"),
        _constant("links", 16, 4, config.links, "link ports"),
        _constant("gpus", 24, 7, config.gpus, "GPUs the configuration was made for"),
    )
    yield _register(
        "tracker_parameters",
        "sizes of the Tracker",
        _constant("sets", 0, 11, config.tracker_sets if config.tracker_tags else 0, "sets"),
        _constant("ways", 12, 5, config.tracker_ways, "ways"),
        _constant("banks", 20, 4, config.tracker_banks, "banks"),
        *(() if config.tracker_tags else (_constant("wg", 24, 4, config.set_bits, "without tags: log2 of the WGs"),)),
    )
    yield _register(
        "trigger_parameters",
        "size of the DMA trigger table",
        _constant("blocks", 0, 17, config.trigger_blocks, "entries, over all banks"),
    )
    yield _register(
        "width_parameters",
        "widths in bits",
        _constant("va", 0, 6, config.va_bits, "virtual address in bytes"),
        _constant("wg", 8, 5, config.wg_bits, "workgroup number"),
        _constant("wf", 16, 3, config.wf_bits, "wavefront number"),
        _constant("epoch", 20, 4, config.epoch_bits, "epoch number"),
        _constant("count", 24, 5, config.count_bits, "Tracker byte count"),
    )


def _epoch(config: RegisterParameters) -> Iterator[Register]:
    """The epoch: what starts and ends it, and how it stands."""
    yield _single(
        "epoch",
        config.epoch_bits,
        Kind.READ_WRITE,
        "number of the collective to arm, taken with `control.arm`; 0 is never armed, nor the last number again",
    )
    yield _register(
        "control",
        "commands; reads as 0",
        Field(
            "arm",
            0,
            1,
            Kind.SELF_CLEARING,
            "end the epoch that is armed; when nothing of it is left, clear the Tracker and start epoch `epoch`: "
            "accept and grant tracked traffic",
        ),
        Field(
            "disarm",
            1,
            1,
            Kind.SELF_CLEARING,
            "end the epoch: tracked traffic is refused, what waits to be sent discarded",
        ),
        Field("clear_counters", 2, 1, Kind.SELF_CLEARING, "set every counter to 0"),
        Field(
            "initialised",
            3,
            1,
            Kind.SELF_CLEARING,
            "with `arm`: no sector of a first-touch range has a tag, and the backing store no record, from before "
            "the last reset; without, the node clears what it has not cleared since (all sectors from base to limit "
            "become 0)",
        ),
        Field(
            "abort",
            4,
            1,
            Kind.SELF_CLEARING,
            "as `disarm`, and the peers are told: each that is in the same epoch, or arms it later, aborts it too",
        ),
    )
    yield _register(
        "status",
        "state of the node",
        Field("armed", 0, 1, Kind.READ_ONLY, "an epoch is armed"),
        Field("cleared", 1, 1, Kind.READ_ONLY, "the Tracker is cleared"),
        Field("kernel_active", 2, 1, Kind.READ_ONLY, "the GEMM kernel runs"),
        Field("idle", 3, 1, Kind.READ_ONLY, "nothing is queued or in flight in this node"),
        Field("done", 4, 1, Kind.READ_ONLY, "this node's part of the collective is complete"),
        Field(
            "arming",
            5,
            1,
            Kind.READ_ONLY,
            "an epoch was called for; its predecessors drain, or what clears memories has not ended",
        ),
        Field("drained", 6, 1, Kind.READ_ONLY, "no epoch is armed, and nothing of an older one is left in this node"),
        Field("doorbell", 7, 1, Kind.READ_ONLY, "the doorbell's tiles are being completed"),
        Field("aborted", 8, 1, Kind.READ_ONLY, "the last epoch was aborted; until `control.arm`"),
    )


def _arbiter(config: RegisterParameters) -> Iterator[Register]:
    """Choice between the streams, and the detector that chooses the threshold."""
    yield _register(
        "arbiter",
        "choice between the compute and the communication stream",
        Field("policy", 0, 2, Kind.READ_WRITE, "arbitration policy", Policy.MCA.value, Policy),
        Field("threshold", 4, 3, Kind.READ_WRITE, "occupancy limit of MCA", Threshold.AUTO.value, Threshold),
        Field("refresh", 8, 1, Kind.READ_WRITE, "refresh the DRAM", int(config.timing.refresh)),
    )
    yield _single(
        "starvation_limit", 16, Kind.READ_WRITE, "cycles communication may wait before it is forced; 0: no limit", 2000
    )
    yield _single(
        "detector_window", 16, Kind.READ_WRITE, "cycles over which the detector counts compute requests", 4096
    )
    yield _single("detector_boundary_10", 16, Kind.READ_WRITE, "threshold 5 at or above this many requests", 3840)
    yield _single("detector_boundary_30", 16, Kind.READ_WRITE, "threshold 10 at or above this many requests", 3584)
    yield _single("detector_boundary_none", 16, Kind.READ_WRITE, "threshold 30 at or above this many requests", 256)


def _spill_base(config: RegisterParameters) -> Iterator[Register]:
    """Where the backing store lies."""
    yield _single(
        "spill_base_low",
        min(config.va_sector_bits, 32),
        Kind.READ_WRITE,
        "sector address of the Tracker's backing store, bits 31:0; one at 0 is not cleared when an epoch is armed",
        locks=True,
    )
    yield _single(
        "spill_base_high",
        max(config.va_sector_bits - 32, 1),
        Kind.READ_WRITE,
        "sector address of the Tracker's backing store, from bit 32",
        locks=True,
    )


def _done(config: RegisterParameters) -> Iterator[Register]:
    """How much there is to do in an epoch, and what of it is complete."""
    yield _single("expected_blocks", 20, Kind.READ_WRITE, "DMA blocks this node sends in the epoch", locks=True)
    yield _single(
        "done_ranges_low", min(config.ranges, 32), Kind.READ_ONLY, "bit i: range i is complete, ranges 0 to 31"
    )
    yield _single(
        "done_ranges_high", max(config.ranges - 32, 1), Kind.READ_ONLY, "bit i - 32: range i is complete, from 32"
    )


def _pace() -> Iterator[Register]:
    """What the policy PACED keeps up with."""
    yield _single("pace", 8, Kind.READ_WRITE, "PACED: cycles per communication request it keeps up with", 4)
    yield _single(
        "pace_lag", 16, Kind.READ_WRITE, "PACED: cycles communication may fall behind before it catches up", 64
    )


def _doorbell(config: RegisterParameters) -> Iterator[Register]:
    """Tiles whose data lies in memory already."""
    yield _register(
        "doorbell_workgroups",
        "whose WF tiles `doorbell.ring` completes",
        Field("first", 0, 16, Kind.READ_WRITE, "number of the first workgroup"),
        Field("count", 16, 16, Kind.READ_WRITE, "workgroups, of consecutive numbers"),
    )
    yield _register(
        "doorbell",
        "completes WF tiles without accesses: their data lies in memory already; not to be rung again while "
        "`status.doorbell`",
        Field("range", 0, config.range_bits, Kind.READ_WRITE, "range that has the workgroups"),
        Field("ring", 31, 1, Kind.SELF_CLEARING, "complete all of their tiles once"),
    )


def _interrupts() -> Iterator[Register]:
    """Causes of the interrupt."""
    yield _register(
        "interrupt_status",
        "causes of the interrupt; write 1 to clear",
        Field("fault", 0, 1, Kind.RW1C, "an access was refused; clearing frees the fault record"),
        Field("done", 1, 1, Kind.RW1C, "this node's part of the collective became complete"),
        Field("aborted", 2, 1, Kind.RW1C, "the epoch was aborted: `abort_cause` says why"),
        Field("memory", 3, 1, Kind.RW1C, "a word of a protected memory had a wrong bit, or more"),
        Field("link", 4, 1, Kind.RW1C, "a port has become dead: `link_status.dead`"),
    )
    yield _register(
        "interrupt_enable",
        "causes that raise the interrupt",
        Field("fault", 0, 1, Kind.READ_WRITE, "raise on fault"),
        Field("done", 1, 1, Kind.READ_WRITE, "raise on done"),
        Field("aborted", 2, 1, Kind.READ_WRITE, "raise on aborted"),
        Field("memory", 3, 1, Kind.READ_WRITE, "raise on memory"),
        Field("link", 4, 1, Kind.READ_WRITE, "raise on link"),
    )


def _faults(config: RegisterParameters) -> Iterator[Register]:
    """The first access that was refused."""
    yield _register(
        "fault_record",
        "first refused access since `interrupt_status.fault` was cleared",
        Field(
            "fault", 0, 4, Kind.READ_ONLY, "why; of LOCKED, a refused register write, the VA is its address", 0, Fault
        ),
        Field("link", 4, 1, Kind.READ_ONLY, "it came from a neighbour"),
        Field("access", 5, 2, Kind.READ_ONLY, "what it wanted", 0, Access),
        Field("wf", 8, config.wf_bits, Kind.READ_ONLY, "wavefront"),
        Field("wg", 12, config.wg_bits, Kind.READ_ONLY, "workgroup"),
    )
    yield _single("fault_va_low", min(config.va_sector_bits, 32), Kind.READ_ONLY, "its sector address, bits 31:0")
    yield _single(
        "fault_va_high", max(config.va_sector_bits - 32, 1), Kind.READ_ONLY, "its sector address, from bit 32"
    )
    yield _single("fault_count", 32, Kind.READ_ONLY, "records that arrived since `interrupt_status.fault` was cleared")


def _links(config: RegisterParameters) -> Iterator[Register]:
    """The link ports: timeouts, state, peers."""
    for name, reset, description in (
        (
            "link_silence",
            1023,
            "longer than anything can be under way; a port is silent and deaf for so long after reset",
        ),
        ("link_retry", 4095, "without an acknowledgement for so long, send again; longer than a round trip"),
        ("link_dead", 1 << 20, "without a message for so long, the link is dead and its session over"),
    ):
        yield _single(name, TIMER_BITS, Kind.READ_WRITE, f"cycles; {description}", reset)
    yield _register(
        "link_status",
        "state of the link ports",
        Field("up", 0, config.links, Kind.READ_ONLY, "bit p: port p is in a session"),
        Field("dead", 16, config.links, Kind.READ_ONLY, "bit p: the peer of port p answers nothing"),
    )
    for first in range(0, config.links, PEERS_PER_REGISTER):
        last = min(first + PEERS_PER_REGISTER, config.links) - 1
        yield _register(
            f"link_peers_{first // PEERS_PER_REGISTER}",
            f"whose packets the ports {first} to {last} take",
            *(
                field
                for port in range(first, last + 1)
                for field in (
                    Field(f"rank_{port}", 8 * (port - first), 6, Kind.READ_WRITE, f"rank of the peer of port {port}"),
                    Field(f"checked_{port}", 8 * (port - first) + 7, 1, Kind.READ_WRITE, "others are refused"),
                )
            ),
            locks=True,
        )


def _aborts(config: RegisterParameters) -> Iterator[Register]:
    """What ends an epoch early."""
    yield _single(
        "watchdog",
        WATCHDOG_BITS,
        Kind.READ_WRITE,
        "cycles in which nothing of an epoch that is not done moves (accesses, packets, commits), after which it is "
        "aborted; 0: never",
    )
    yield _register(
        "abort_cause",
        "who aborted the last epoch; until `control.arm`",
        Field("host", 0, 1, Kind.READ_ONLY, "`control.abort`"),
        Field("watchdog", 1, 1, Kind.READ_ONLY, "nothing had moved for `watchdog` cycles"),
        Field("peer", 2, 1, Kind.READ_ONLY, "a peer said that it has aborted this epoch"),
        Field("memory", 3, 1, Kind.READ_ONLY, "a word in a protected memory was lost"),
        Field("epoch", 8, config.epoch_bits, Kind.READ_ONLY, "number of the epoch that was aborted last"),
    )


def _memory(config: RegisterParameters) -> Iterator[Register]:
    """How large the backing store is, and where in the address space the node's memory lies."""
    yield _single(
        "spill_sectors",
        config.spill_sector_bits,
        Kind.READ_WRITE,
        "sectors of the Tracker's backing store; what lies beyond is neither read, written nor cleared",
        locks=True,
    )
    yield _register(
        "memory_window",
        "which addresses are in the memory of this node",
        Field(
            "high",
            0,
            config.window_bits,
            Kind.READ_WRITE,
            f"address bits from {config.va_bits - config.window_bits} on, by which none are told apart in the memory",
        ),
        Field("checked", 31, 1, Kind.READ_WRITE, "accesses to other addresses are refused"),
        locks=True,
    )


def _protected_memories() -> Iterator[Register]:
    """Of protected memories."""
    known = "; ".join(f"{memory.value}: {memory.name}" for memory in ProtectedMemory)
    address = Field("address", 8, MEMORY_ADDRESS_BITS, Kind.READ_ONLY, "word in that memory")
    yield _register(
        "memory_error",
        "the last error in a protected memory since `control.arm`; one of a lost word stays for another such",
        Field("memory", 0, 4, Kind.READ_ONLY, f"which memory; {known}", 0, ProtectedMemory),
        Field("lost", 4, 1, Kind.READ_ONLY, "more than one bit was wrong"),
        Field("corrected", 5, 1, Kind.READ_ONLY, "one bit was wrong, and is right again"),
        address,
    )
    yield _register(
        "memory_scrub",
        "search for errors in words that nobody reads",
        Field(
            "memory_scrub",
            0,
            SCRUB_BITS,
            Kind.READ_WRITE,
            "cycles after which the next word of each protected memory is looked at; 0: none is",
            256,
        ),
    )
    yield _register(
        "memory_upset_bits",
        "what a self test does to a word",
        Field("first", 0, 7, Kind.READ_WRITE, "bit that `memory_upset` turns; check bits are behind their word"),
        Field("second", 8, 7, Kind.READ_WRITE, "another one"),
        Field("two", 16, 1, Kind.READ_WRITE, "both are turned"),
    )
    yield _register(
        "memory_upset",
        "self test of a protected memory; what it was told before and has not done yet it forgets",
        Field("memory", 0, 4, Kind.READ_WRITE, f"which memory; {known}", 0, ProtectedMemory),
        Field("address", 8, MEMORY_ADDRESS_BITS, Kind.READ_WRITE, "word in that memory"),
        Field("turn", 31, 1, Kind.SELF_CLEARING, "turn bits of it, as soon as nobody else reads"),
    )


def windows(config: RegisterParameters) -> tuple[Window, Window]:
    """The range table and the send table."""
    return (
        Window("range_table", WINDOW_BASE, config.ranges, ENTRY_WORDS, Word, WORDS, "Write CONTROL last. "),
        Window("send_table", SEND_BASE, config.sends, SEND_ENTRY_WORDS, SendWord, SEND_WORDS),
    )


def _windows(config: RegisterParameters) -> Iterator[Register]:
    """The first register of each window."""
    for window in windows(config):
        name, words = window.name, window.entry_words
        field = Field(name, 0, 32, Kind.WINDOW, f"one of {window.entries * words} words; cleared by reset")
        text = f"{name.replace('_', ' ')}: entry i, word w at {window.base:#x} + i * {4 * words:#x} + w * 4"
        yield Register(name, window.base, (field,), text, locks=True)


def find_register(config: RegisterParameters, name: str) -> Register:
    """The register called `name`; raises KeyError."""
    for register in register_map(config):
        if register.name == name:
            return register
    raise KeyError(f"there is no register {name!r}")


def check_map(config: RegisterParameters) -> None:
    """Raises ValueError when two registers or fields overlap or one does not fit: a fault of this file."""
    seen: dict[int, str] = {}
    for register in register_map(config):
        if register.address in seen:
            raise ValueError(f"{register.name} and {seen[register.address]} share address {register.address:#x}")
        seen[register.address] = register.name
        used = 0
        for field in register.fields:
            if field.width < 1 or used & field.mask or field.mask >> 32 or field.reset >> field.width:
                raise ValueError(f"field {field.name} of {register.name} overlaps or does not fit")
            used |= field.mask
