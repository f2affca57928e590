"""Payload types that travel between the blocks, in the order in which one sector meets them.

The enums are fixed; layouts whose widths depend on :class:`hw.message_parameters.MessageParameters` are attributes of
:class:`Messages`. All addresses are in sectors (32 B): a `va` here is the byte address divided by 32.
"""

from functools import cached_property

from amaranth.hdl import Cat, Shape, Value, unsigned
from amaranth.lib import data, enum

from .geometry import COLUMN_BITS, INTERLEAVE_SECTORS, ROW_BITS
from .message_parameters import MessageParameters

BANK_SHAPE = unsigned(4)
"""Bank of a channel: bits 1:0 the bank group, bits 3:2 the bank in its group."""


class Access(enum.Enum, shape=2):
    """What a request does to its sector."""

    READ = 0
    STORE = 1
    UPDATE = 2


class AluOperation(enum.Enum, shape=2):
    """Reduction done by the near-bank ALU for an update (T3 section 4.3)."""

    ADD = 0
    MIN = 1
    MAX = 2
    STORE = 3


class DataType(enum.Enum, shape=2):
    """Element type of an update."""

    FP16 = 0
    BF16 = 1
    FP32 = 2
    INT32 = 3


class TrafficClass(enum.Enum, shape=2):
    """Accounting class of a request: DRAM sectors are counted by (traffic_class, access)."""

    GEMM = 0
    RS = 1
    AG = 2
    OTHER = 3


class Policy(enum.Enum, shape=2):
    """Arbitration between the compute and the communication stream (paper section 4.5; PACED is our own, see
    :class:`hw.memory_controller.arbiter.Arbiter`)."""

    ROUND_ROBIN = 0
    COMPUTE_FIRST = 1
    MCA = 2
    PACED = 3


class Threshold(enum.Enum, shape=3):
    """DRAM-queue occupancy below which MCA lets communication in: 5, 10, 30, no limit, or chosen by the hardware."""

    OCCUPANCY_5 = 0
    OCCUPANCY_10 = 1
    OCCUPANCY_30 = 2
    NONE = 3
    AUTO = 4


class Mapping(enum.Enum, shape=2):
    """What a range of the output array is (paper Figs 11-12)."""

    LOCAL = 0
    REMOTE = 1
    DMA = 2


class Source(enum.Enum, shape=2):
    """Who waits for the data of a read."""

    COMPUTE = 0
    DMA = 1
    SPILL = 2


class RowCommand(enum.Enum, shape=2):
    """Command on a channel's row bus. PRE with `all` set precharges every bank."""

    ACT = 0
    PRE = 1
    REF = 2


class ColumnCommand(enum.Enum, shape=2):
    """Command on a channel's column bus."""

    RD = 0
    WR = 1
    UPDATE = 2


class Fault(enum.Enum, shape=4):
    """Why an access was refused (recorded in the fault registers, raises the interrupt)."""

    OUTSIDE = 0
    REMOTE_READ = 1
    NOT_ARMED = 2
    MASK = 3
    TILE = 4
    EPOCH = 5
    PAST_THRESHOLD = 6
    CRC = 7
    DESTINATION = 8
    LEFT_OVER = 9
    BUSY = 10
    SOURCE = 11
    WATCHDOG = 12
    LOCKED = 13
    MEMORY = 14


ArbiterControl = data.StructLayout(
    {
        "policy": Policy,
        "threshold": Threshold,
        "starvation_limit": unsigned(16),
        "window": unsigned(16),
        "boundary_10": unsigned(16),
        "boundary_30": unsigned(16),
        "boundary_none": unsigned(16),
        "pace": unsigned(8),
        "pace_lag": unsigned(16),
        "refresh": unsigned(1),
    }
)
"""Programming of a channel's arbiter. `starvation_limit`: cycles communication may wait before it is let through (0:
no limit). `window`: cycles at the start of the kernel over which the detector counts the requests of the compute
stream; the threshold is 5 at or above `boundary_10` requests, 10 at or above `boundary_30`, 30 at or above
`boundary_none`, and no limit below that. `pace`: cycles per communication request that PACED keeps up with;
`pace_lag`: cycles that communication may fall behind it before it goes first."""


SECTOR_WIDTH = 256
"""Bits of a sector's data."""


def with_parity(data: Value, mask: Value | None = None) -> Value:
    """`data` of a sector and, above it, its parity: even over data, the byte `mask` it is written under, and itself.
    Without `mask` all of it is written. A sector whose parity is not even is poisoned: it is taken along, and not
    written (:class:`hw.memory_controller.payload_store.PayloadStore`)."""
    return Cat(data, data.xor() if mask is None else Cat(data, mask).xor())


class Messages:
    """Layouts of every payload for one set of parameters."""

    def __init__(self, config: MessageParameters):
        self.config = config

    @cached_property
    def va(self) -> object:
        """Virtual address in sectors."""
        return unsigned(self.config.va_sector_bits)

    @cached_property
    def wg(self) -> object:
        """Workgroup: names the output tile, not the dispatch order."""
        return unsigned(self.config.wg_bits)

    @cached_property
    def wf(self) -> object:
        """Wavefront within its workgroup."""
        return unsigned(self.config.wf_bits)

    @cached_property
    def epoch(self) -> object:
        """Number of the collective an access belongs to; 0 is never armed."""
        return unsigned(self.config.epoch_bits)

    @cached_property
    def memory_id(self) -> object:
        """Tag of a read: the compute stream's 8 bits, or a sector of the DMA engine's packet buffers."""
        return unsigned(max(8, (self.config.dma_packets * INTERLEAVE_SECTORS - 1).bit_length()))

    @cached_property
    def sector(self) -> Shape:
        """A sector on its way through the node and over links: 256 bits; with protection of memories, above them a
        parity of these and of its byte mask (:func:`with_parity`)."""
        return unsigned(SECTOR_WIDTH + self.config.checks_sectors)

    @cached_property
    def compute_request(self) -> data.StructLayout:
        """One access of the GPU. `id` comes back with the data of a read; `mask` has one bit per byte."""
        return data.StructLayout(
            {
                "access": Access,
                "va": self.va,
                "wg": self.wg,
                "wf": self.wf,
                "traffic_class": TrafficClass,
                "id": unsigned(8),
                "mask": unsigned(32),
                "data": unsigned(256),
            }
        )

    @cached_property
    def compute_response(self) -> data.StructLayout:
        """Data of one read, in the order the DRAM served them; `error` is set when the read was refused."""
        return data.StructLayout({"id": unsigned(8), "error": unsigned(1), "data": unsigned(256)})

    @cached_property
    def memory_request(self) -> data.StructLayout:
        """One access on its way through the memory controller.

        `first_touch`: the first update of `epoch` to the sector acts as a store. `tracked`: commit it to the Tracker
        under (`range`, `wg`, `wf`). `source` and `id` name the reader and its tag.
        """
        return data.StructLayout(
            {
                "access": Access,
                "alu": AluOperation,
                "dtype": DataType,
                "first_touch": unsigned(1),
                "tracked": unsigned(1),
                "traffic_class": TrafficClass,
                "source": Source,
                "id": self.memory_id,
                "range": unsigned(self.config.range_bits),
                "wg": self.wg,
                "wf": self.wf,
                "epoch": self.epoch,
                "va": self.va,
                "mask": unsigned(32),
                "data": self.sector,
            }
        )

    @cached_property
    def read_return(self) -> data.StructLayout:
        """Data of one DRAM read; the receiver has room for it by construction, so there is no ready."""
        return data.StructLayout({"valid": unsigned(1), "source": Source, "id": self.memory_id, "data": self.sector})

    @cached_property
    def remote_store(self) -> data.StructLayout:
        """A GEMM store to a remote-mapped range: it goes to `sends` entries of the send table from `first_send` on, the
        first of them through link port `port`; `epoch`: that in which it was accepted."""
        return data.StructLayout(
            {
                "port": unsigned(4),
                "first_send": unsigned(self.config.send_bits),
                "sends": unsigned(6),
                "epoch": self.epoch,
                "wg": self.wg,
                "wf": self.wf,
                "va": self.va,
                "mask": unsigned(32),
                "data": self.sector,
            }
        )

    @cached_property
    def commit(self) -> data.StructLayout:
        """A tracked access whose column command was issued. `bytes` is the population count of its mask."""
        return data.StructLayout(
            {
                "range": unsigned(self.config.range_bits),
                "wg": self.wg,
                "wf": self.wf,
                "epoch": self.epoch,
                "va": self.va,
                "bytes": unsigned(self.config.count_bits),
            }
        )

    @cached_property
    def ready_block(self) -> data.StructLayout:
        """A DMA block whose WF tiles are complete. `va` is the start of its first WF tile, `wf` that tile's number;
        `bottom`/`right`: its WG is in the last tile row/column, so it may be ragged."""
        return data.StructLayout(
            {
                "range": unsigned(self.config.range_bits),
                "wg": self.wg,
                "wf": self.wf,
                "va": self.va,
                "bottom": unsigned(1),
                "right": unsigned(1),
            }
        )

    @cached_property
    def launch_event(self) -> data.StructLayout:
        """WG-launch event (paper section 7.2): the block (`range`, `wg`, first `wf`) is complete."""
        return data.StructLayout({"range": unsigned(self.config.range_bits), "wg": self.wg, "wf": self.wf})

    @cached_property
    def fault_record(self) -> data.StructLayout:
        """A refused access; `link` is set when it came from a neighbour."""
        return data.StructLayout(
            {"fault": Fault, "link": unsigned(1), "access": Access, "va": self.va, "wg": self.wg, "wf": self.wf}
        )

    @cached_property
    def spill_tag(self) -> Shape:
        """Which buffer of which bank of the Tracker waits for a counter."""
        return unsigned(max(1, (self.config.spill_tags - 1).bit_length()))

    @cached_property
    def spill_request(self) -> data.StructLayout:
        """Move one counter to (`write`) or from the backing store; `index` is {wg, wf}.

        `tag` returns with the data of a fetch (the MSHR that waits for it)."""
        return data.StructLayout(
            {
                "write": unsigned(1),
                "tag": self.spill_tag,
                "index": unsigned(self.config.wg_bits + self.config.wf_bits),
                "record": self.spill_record,
            }
        )

    @cached_property
    def spill_record(self) -> data.StructLayout:
        """A counter in the backing store: 128 bits, two to a sector; valid when `present` and `epoch` is the armed
        one."""
        used = self.config.va_sector_bits + self.config.count_bits + self.config.epoch_bits + 1
        return data.StructLayout(
            {
                "present": unsigned(1),
                "epoch": self.epoch,
                "count": unsigned(self.config.count_bits),
                "va": self.va,
                "reserved": unsigned(128 - used),
            }
        )

    @cached_property
    def spill_response(self) -> data.StructLayout:
        """Answer to a fetch; no ready, the MSHR waits for it."""
        return data.StructLayout({"valid": unsigned(1), "tag": self.spill_tag, "record": self.spill_record})

    @cached_property
    def row_command(self) -> data.StructLayout:
        """Row bus of a channel, one command a cycle."""
        return data.StructLayout(
            {
                "valid": unsigned(1),
                "command": RowCommand,
                "all": unsigned(1),
                "bank": BANK_SHAPE,
                "row": unsigned(ROW_BITS),
            }
        )

    @cached_property
    def column_command(self) -> data.StructLayout:
        """Column bus of a channel, one command a cycle. Write data follows WL cycles later, read data CL cycles later.

        `alu`, `dtype`, `first_touch` and `epoch` go with UPDATE; a WR or a first touch leaves `epoch` in the sector."""
        return data.StructLayout(
            {
                "valid": unsigned(1),
                "command": ColumnCommand,
                "bank": BANK_SHAPE,
                "column": unsigned(COLUMN_BITS),
                "alu": AluOperation,
                "dtype": DataType,
                "first_touch": unsigned(1),
                "epoch": self.epoch,
            }
        )

    @cached_property
    def write_data(self) -> data.StructLayout:
        """Write data bus of a channel, valid WL cycles after its command."""
        return data.StructLayout({"mask": unsigned(32), "data": unsigned(256)})

    @cached_property
    def read_data(self) -> data.StructLayout:
        """Read data bus of a channel, CL cycles after its command."""
        return data.StructLayout({"valid": unsigned(1), "data": unsigned(256)})
