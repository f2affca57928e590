"""What a :class:`sim.models.workgroup_engine.WorkgroupEngine` is told: kernels, their workgroups, and the steps of a
GEMM.

A plan is a file of lines of :data:`PLAN_BITS` in hexadecimal: :data:`KERNELS` kernel descriptors, then the workgroups
of all of them. A second file holds, for a GEMM, one 32-bit line per workgroup and step. What workgroups wait for is in
two more: for every wg number the gate that its launch events count up, and which workgroup waits for which gates.
Addresses, counts and strides are in sectors of the simulated channel slice, times in cycles.
"""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from hw.messages import TrafficClass

KERNELS = 3
"""Kernels of one run, in order; one without workgroups is left out."""
MAX_SLOTS = 512
"""Workgroups at a time."""
MAX_WORKGROUPS = 1 << 14
PLAN_BITS = 320
SECTOR_COUNT = unsigned(11)
"""Sectors that a workgroup reads of an operand in a step, or stores in a row, of all channels together."""
STEP_LINES = 1 << 18
"""Steps of all workgroups of a GEMM."""
GATES = 1 << 10
"""Gates of a run; number 0 is counted up by tiles for which nobody waits."""
GATE_LINES = 1 << 12
"""Pairs of a workgroup and a gate that it waits for."""


class Sharing(enum.Enum, shape=2):
    """On which slots a kernel runs beside another: on its own; on those of the other, as its workgroups leave them; or
    on those of the other from the start. What it has taken it keeps to its end, and the other has so many fewer."""

    OWN = 0
    FOLLOWS = 1
    PRECEDES = 2


Kernel = data.StructLayout(
    {
        "first": unsigned(14),
        "count": unsigned(14),
        "slots": unsigned(10),
        "steps": unsigned(8),
        "stepped": unsigned(1),
        "traffic_class": TrafficClass,
        "active": unsigned(1),
        "after_done": unsigned(1),
        "arrive": unsigned(26),
        "rows": unsigned(8),
        "pitch": unsigned(16),
        "wf_stride": unsigned(24),
        "a_stride": unsigned(24),
        "slice_steps": unsigned(8),
        "slice_launches": unsigned(16),
        "prefetched": unsigned(2),
        "reads": unsigned(10),
        "units": unsigned(10),
        "beside": unsigned(1),
        "sharing": Sharing,
        "first_wait": unsigned(12),
        "waits": unsigned(13),
    }
)
"""A kernel: its workgroups are lines `first` to `first + count - 1`, at most `slots` at a time. Each has `steps` steps;
with `stepped` the step file says what a step fetches and whom it waits for, else it fetches all. `traffic_class` is
that of its accesses; `active` raises the node's `kernel_active`; with `after_done` it begins when the node's collective
is done. It ends when all its stores are taken and `arrive` sectors have come over the link in all. Its tiles are cut
into WF tiles of `rows` rows: `pitch` from row to row, `wf_stride` from WF tile to WF tile; the first operands of two
steps lie `a_stride` apart, one after another if it is 0. Of the depth it reads slices of `slice_steps` steps as they
arrive, each complete with `slice_launches` launch events (0: all is there when a workgroup begins). `prefetched` steps,
0 to 2, are read ahead of the one that computes, `reads` sectors of a workgroup are under way at the most (0: no limit),
and the workgroups of so many `units`, at most three of each, take turns to compute (0: each has a unit of its own).
With `beside` the kernels after it do not wait for its end, and run on slots of their own or as their `sharing` says; a
second one that says so waits for the first. Its workgroups wait for gates as lines `first_wait` to `first_wait + waits
- 1` of the file of waits say."""

Workgroup = data.StructLayout(
    {
        "a_va": unsigned(32),
        "b_va": unsigned(32),
        "store_va": unsigned(32),
        "wait": unsigned(26),
        "not_before": unsigned(24),
        "lead_cycles": unsigned(20),
        "step_cycles": unsigned(20),
        "wg": unsigned(16),
        "a_sectors": SECTOR_COUNT,
        "b_sectors": SECTOR_COUNT,
        "a_last": SECTOR_COUNT,
        "b_last": SECTOR_COUNT,
        "row_sectors": SECTOR_COUNT,
        "last_bytes": unsigned(6),
        "remote": unsigned(1),
        "port": unsigned(4),
        "rows": unsigned(9),
        "data": unsigned(28),
        "gate": unsigned(10),
    }
)
"""A workgroup: in each step it reads `a_sectors` and `b_sectors` of two operands that lie in order of the steps at
`a_va`, `b_va` (`a_last`, `b_last` in the last step). It begins `not_before` cycles after its kernel, and not before
`wait` sectors have come over the link in all; its first step begins `lead_cycles` later at the earliest, a step takes
`step_cycles`. Its tile, at `store_va`, is output tile `wg`, `row_sectors` to a row, of whose last sector `last_bytes`
are stored; it has `rows` rows in all, which fill its WF tiles one after another. `remote`: the stores leave by link
port `port`, as it has room. `data`: distance from where a sector is stored to where its data is taken from: the splits
of a GEMM store other addends to the same place. Of slice s of the depth it reads nothing before gate number `gate` + s
is open."""

Wait = data.StructLayout({"workgroup": unsigned(14), "gate": unsigned(10), "launches": unsigned(16)})
"""Workgroup number `workgroup` of a kernel, and so all after it, does not begin before `launches` launch events have
counted up `gate`. Lines are in the order of the workgroups."""

Step = data.StructLayout({"fetch_a": 1, "fetch_b": 1, "wait_a": unsigned(14), "wait_b": unsigned(14)})
"""A step of a workgroup: `fetch_a`, `fetch_b`: the operand's block comes from memory, not from the last-level cache;
`wait_a`, `wait_b`: number (in its kernel) of the workgroup whose fetch in this step brings the block, itself if
none."""

for _layout in (Kernel, Workgroup):
    assert _layout.size <= PLAN_BITS
