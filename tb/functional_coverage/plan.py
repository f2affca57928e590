"""The plan: what is to be seen, block by block along the path of a sector."""

from tb.functional_coverage.group import Group, read_unreachable

_ARGUED = read_unreachable()
ACCESSES = ("READ", "STORE", "UPDATE")
BANDS = {"0..4": range(5), "5..9": range(5, 10), "10..29": range(10, 30), "30..64": range(30, 65)}
"""Bands of DRAM-queue occupancy: the thresholds of MCA are their ends."""
FLOAT_CLASSES = (
    *(sign + kind for kind in ("zero", "subnormal", "normal", "infinity") for sign in ("+", "-")),
    "quiet NaN",
    "signaling NaN",
)
INTEGER_CLASSES = ("zero", "one", "positive", "negative", "minus one", "largest", "smallest")
TILES = {"1": range(1, 2), "2..7": range(2, 8), "8": range(8, 9)}
"""WF tiles of a workgroup."""
LENGTHS = {"1": range(1, 2), "2..7": range(2, 8), "8": range(8, 9)}
"""Sectors of a packet."""
BLOCK_SIZES = {"1": range(1, 2), "2..3": range(2, 4), "4..7": range(4, 8), "8": range(8, 9)}
"""WF tiles of a DMA block."""


def band(bands: dict[str, range], value: int) -> str:
    """The name of the band that holds `value`."""
    return next(name for name, values in bands.items() if value in values)


ADDRESS_MAP = Group(
    "address_map.access",
    _ARGUED,
    mapping=("LOCAL", "REMOTE", "DMA"),
    access=ACCESSES,
    place=("before the first", "first", "inside", "last", "after the last"),
)
"""Accepted accesses by the mapping of the range whose bounds they are nearest to."""

CONTROLLER = Group(
    "memory_controller.request",
    _ARGUED,
    stream=("compute", "communication", "spill"),
    access=ACCESSES,
    acceptance=("at once", "after waiting"),
)
COMMIT = Group(
    "memory_controller.origin",
    _ARGUED,
    origin=("local", "remote", "DMA"),
    access=("STORE", "UPDATE"),
    bytes=("whole sector", "part"),
)
"""Accesses that the Tracker counts, by who made them. Their commits carry no origin, so that Tracker cannot tell."""

ARBITER = Group(
    "arbiter.choice",
    _ARGUED,
    policy=("ROUND_ROBIN", "COMPUTE_FIRST", "MCA", "PACED"),
    threshold=("OCCUPANCY_5", "OCCUPANCY_10", "OCCUPANCY_30", "NONE"),
    occupancy=tuple(BANDS),
    served=("compute", "communication", "communication, starved"),
    kernel=("active", "ended"),
)

ALU = {
    dtype: Group(f"near_bank.{dtype}", _ARGUED, operation=("add", "min", "max"), old=classes, new=classes)
    for dtype, classes in (
        ("fp16", FLOAT_CLASSES),
        ("bf16", FLOAT_CLASSES),
        ("fp32", FLOAT_CLASSES),
        ("int32", INTEGER_CLASSES),
    )
}
ALU_CONTROL = Group(
    "near_bank.control",
    _ARGUED,
    dtype=("fp16", "bf16", "fp32", "int32"),
    operation=("add", "min", "max", "store"),
    mask=("whole sector", "part"),
    first_touch=("first", "later"),
)
BANK_GROUP = Group(
    "near_bank.hazard",
    _ARGUED,
    before=("RD", "WR", "UPDATE"),
    now=("RD", "WR", "UPDATE"),
    sector=("same", "other"),
)
"""Column commands to one bank group, in order."""

TRACKER = Group(
    "tracker.outcome",
    _ARGUED,
    outcome=("hit", "allocation", "eviction", "fetch", "trigger", "stall"),
    ranges=("DMA only", "event only", "both"),
    epoch=("first", "later"),
)
"""What happened, by what the blocks of the programmed ranges start."""
TRACKER_COMMIT = Group(
    "tracker.commit",
    _ARGUED,
    mapping=("LOCAL", "DMA"),
    launch=("launch", "no launch"),
    epoch=("current", "other"),
)
TRIGGER = Group(
    "trigger_table.completion",
    _ARGUED,
    members=("1", "2..7", "8"),
    action=("none", "DMA", "launch", "both"),
    state=("first of its block", "further", "completes its block", "doubled"),
)
DOORBELL = Group(
    "doorbell.ring",
    _ARGUED,
    doorbell=("ready", "not armed", "walking"),
    range=("tracked", "not tracked", "not valid"),
    workgroups=("none", "all", "first", "inner", "last", "before the range", "past the range"),
)
"""Rings, by what they find: the doorbell's state, and what the range's words and their own workgroups say."""
DOORBELL_TILE = Group(
    "doorbell.tile",
    _ARGUED,
    edge=("body", "right", "bottom", "corner"),
    tiles=tuple(TILES),
    acceptance=("at once", "after waiting"),
)
"""WF tiles that are committed, by which threshold is theirs and how many their workgroup has."""
DOORBELL_END = Group(
    "doorbell.end",
    _ARGUED,
    walk=("completed", "disarmed on a tile", "disarmed between workgroups"),
    workgroups=("1", "several"),
)
SPILL = Group("spill_port.request", _ARGUED, kind=("write", "fetch"), acceptance=("at once", "after waiting"))

DMA = Group(
    "dma.block",
    _ARGUED,
    size=tuple(BLOCK_SIZES),
    ragged=("whole", "bottom", "right", "corner"),
    buffers=("always free", "waited for"),
)
PACKETIZER = Group(
    "packetizer.packet", _ARGUED, length=tuple(LENGTHS), last=("whole sector", "part"), sends=("one", "several")
)
LINK = Group(
    "link.state",
    _ARGUED,
    direction=("a to b", "b to a"),
    state=("idle", "busy", "no credit", "no grant"),
)
LINK_PACKET = Group(
    "link.packet",
    _ARGUED,
    direction=("a to b", "b to a"),
    source=("dma", "store"),
    length=tuple(LENGTHS),
    sends=("one", "several"),
)
TROUBLE = ("damaged", "again", "cut", "dead")
LINK_TROUBLE = Group("link.trouble", _ARGUED, direction=("a to b", "b to a"), event=TROUBLE)

REGISTERS = Group(
    "registers.access",
    _ARGUED,
    operation=("read", "write", "partial write"),
    target=("read-write", "read-only", "trigger", "range window", "send window", "nothing"),
    answer=("OKAY", "SLVERR"),
)
GROUPS = (
    ADDRESS_MAP,
    CONTROLLER,
    COMMIT,
    ARBITER,
    *ALU.values(),
    ALU_CONTROL,
    BANK_GROUP,
    TRACKER,
    TRACKER_COMMIT,
    TRIGGER,
    DOORBELL,
    DOORBELL_TILE,
    DOORBELL_END,
    SPILL,
    DMA,
    PACKETIZER,
    LINK,
    LINK_PACKET,
    LINK_TROUBLE,
    REGISTERS,
)
