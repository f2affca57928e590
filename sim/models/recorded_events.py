"""What a run writes down for its timeline: which events, and what each tells. `recorder.sv` writes them as they happen.

A payload has 64 bits: :data:`TileEvent` where a WF tile is concerned, :data:`PacketEvent` where a packet is, else as
told with the source.
"""

from amaranth import Signal
from amaranth.hdl import unsigned
from amaranth.lib import data

from hw.config import Configuration

TileEvent = data.StructLayout(
    {"range": unsigned(8), "wf": unsigned(4), "wg": unsigned(20), "va": unsigned(32)},
)
"""A WF tile (`range`, `wg`, `wf`), and the low bits of a sector's address."""
PacketEvent = data.StructLayout(
    {"rank": unsigned(6), "traffic_class": unsigned(2), "wf": unsigned(4), "wg": unsigned(20), "va": unsigned(32)},
)
"""A packet: `rank` it goes to, or comes from; the WF tile of its first sector, and the low bits of its address."""
QueueEvent = data.StructLayout({"occupancy": unsigned(8), "threshold": unsigned(8), "reserved": unsigned(48)})
"""A DRAM queue, every :data:`SAMPLED` cycles: requests in it, and the threshold in force."""
WorkgroupEvent = data.StructLayout(
    {"slot": unsigned(16), "kernel": unsigned(8), "reserved": unsigned(8), "workgroup": unsigned(32)}
)
"""A slot's workgroup, numbered in its kernel; or a stage: `slot`, how many workgroups, `kernel`: what it does."""
SAMPLED = 32
STAGES = ("read", "compute", "store", "over")
"""What a stage of workgroups does, as `kernel` of a :data:`WorkgroupEvent` of source `stage`."""


def node_sources(config: Configuration) -> list[str]:
    """Sources in a node, in order. `commit`: a tracked access was committed; `block`: its tiles are complete, the DMA
    engine of each lane has it; `launch`: WG-launch event; `doorbell`: a tile was committed by it; `evicted`, `fetched`:
    how many counters; `fault`: its kind, then bit 4: from a link."""
    commits = [f"commit{channel}" for channel in range(config.channels)]
    return [*commits, "block", "launch", "doorbell", "evicted", "fetched", "fault"]


def lane_sources(config: Configuration, lane: int) -> list[str]:
    """Sources around lane `lane` of a node, in order, for each link port (and in it, each lane): `sent`: the first flit
    of a packet leaves; `sent_end`: its last; `received`: as `sent`, from a link."""
    ports = (port * config.lanes + lane for port in range(config.links))
    return [f"{name}{port}" for port in ports for name in ("sent", "sent_end", "received")]


def gpu_sources(config: Configuration) -> list[str]:
    """Sources around a node, in order: `start`: a run begins; `done`: the node's collective is; `queue`: of a channel;
    `begun`, `retired`: of a workgroup; `stage`: of an array generator's workgroups."""
    return ["start", "done", *(f"queue{channel}" for channel in range(config.channels)), "begun", "retired", "stage"]


RecordedWorkgroup = data.StructLayout({"valid": unsigned(1), "payload": WorkgroupEvent})


def recorded_workgroups() -> list[data.View]:
    """Signals for `begun`, `retired` and `stage` of compute units."""
    return [Signal(RecordedWorkgroup, name=f"recorded_{name}") for name in ("begun", "retired", "stage")]
