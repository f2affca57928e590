"""What a :class:`sim.models.workgroup_engine.WorkgroupEngine` is told: kernels, their workgroups, and the steps of a
GEMM.

A plan is a file of 256-bit lines in hexadecimal: :data:`KERNELS` kernel descriptors, then the workgroups of all of
them. A second file holds, for a GEMM, one 32-bit line per workgroup and step. Addresses, counts and strides are in
sectors of the simulated channel slice, times in cycles.
"""

from amaranth.hdl import unsigned
from amaranth.lib import data

from hw.messages import TrafficClass

KERNELS = 3
"""Kernels of one run, in order; one without workgroups is left out."""
MAX_SLOTS = 256
"""Workgroups at a time: the width of a request's id."""
MAX_WORKGROUPS = 1 << 14
PLAN_BITS = 256

Kernel = data.StructLayout(
    {
        "first": unsigned(14),
        "count": unsigned(14),
        "slots": unsigned(9),
        "steps": unsigned(8),
        "stepped": unsigned(1),
        "traffic_class": TrafficClass,
        "active": unsigned(1),
        "after_done": unsigned(1),
        "arrive": unsigned(24),
        "wfs": unsigned(4),
        "rows": unsigned(8),
        "pitch": unsigned(16),
        "wf_stride": unsigned(24),
    }
)
"""A kernel: its workgroups are lines `first` to `first + count - 1`, at most `slots` at a time. Each has `steps`
steps; with `stepped` the step file says what a step fetches and whom it waits for, else it fetches all. `traffic_class` is
the accounting class of its accesses; `active` raises the node's `kernel_active`; with `after_done` it begins when
the node's collective is done. It ends when all its stores are taken and `arrive` sectors have come over the link in
all. Its tiles are `wfs` WF tiles of `rows` rows: `pitch` from row to row, `wf_stride` from WF tile to WF tile."""

Workgroup = data.StructLayout(
    {
        "a_va": unsigned(32),
        "b_va": unsigned(32),
        "store_va": unsigned(32),
        "wait": unsigned(24),
        "not_before": unsigned(24),
        "lead_cycles": unsigned(20),
        "step_cycles": unsigned(20),
        "wg": unsigned(16),
        "a_sectors": unsigned(8),
        "b_sectors": unsigned(8),
        "a_last": unsigned(8),
        "b_last": unsigned(8),
        "row_sectors": unsigned(8),
        "last_bytes": unsigned(6),
        "remote": unsigned(1),
    }
)
"""A workgroup: in each step it reads `a_sectors` and `b_sectors` of two operands that lie in order of the steps at
`a_va`, `b_va` (`a_last`, `b_last` in the last step). It begins `not_before` cycles after its kernel, and not before
`wait` sectors have come over the link in all; its first step begins `lead_cycles` later at the earliest, a step takes
`step_cycles`. Its tile, at `store_va`, is output tile `wg`, `row_sectors` to a row, of whose last sector `last_bytes`
are stored. `remote`: the stores go to the neighbour, at the pace of the link."""

Step = data.StructLayout({"fetch_a": 1, "fetch_b": 1, "wait_a": unsigned(14), "wait_b": unsigned(14)})
"""A step of a workgroup: `fetch_a`, `fetch_b`: the operand's block comes from memory, not from the last-level cache;
`wait_a`, `wait_b`: number (in its kernel) of the workgroup whose fetch in this step brings the block, itself if
none."""

for _layout in (Kernel, Workgroup):
    assert _layout.size <= PLAN_BITS
