"""The hardware: a library of blocks, and a node made of them.

A package is a step on the path of a sector, or what serves all steps:

- :mod:`hw.address_map`: where an access of the GPU goes;
- :mod:`hw.memory_controller`: one channel's queues, arbitration and DRAM commands;
- :mod:`hw.near_bank`: op-and-store units beside the DRAM's banks;
- :mod:`hw.tracker`: counts the accesses of every WF tile and triggers what follows the last;
- :mod:`hw.dma`: reads what is complete;
- :mod:`hw.link`: takes it to the neighbour, and writes what comes from one;
- :mod:`hw.memory_clear`: clears the memory that a reset does not reach;
- :mod:`hw.registers`: what software sees of all that;
- :mod:`hw.node`: all of it, wired together; its parameters are in :mod:`hw.config`;
- :mod:`hw.messages`, :mod:`hw.range_table`, :mod:`hw.counters`: what the blocks tell one another;
- :mod:`hw.parameters`, :mod:`hw.geometry`, :mod:`hw.dram_timing`: what they are built from;
- :mod:`hw.primitives`: parts that know nothing of T3;
- :mod:`hw.export`, :mod:`hw.synthesis`: from a block to files, and to figures;
- :mod:`hw.release`: the version and the licence that these files say.

Reset is synchronous, one cycle of `rst`. It sets registers; memories start with garbage and keep what they hold:

- the register file writes 0 to every word of the range table, its own and over the programming bus every block's,
  before it accepts an access (:class:`hw.registers.RegisterFile`);
- each bank of the Tracker clears its counters, the numbers of spilled ones and its part of the trigger table, after
  reset and after every `clear`, before it accepts a commit (:class:`hw.tracker.Tracker`);
- of every other memory of a block only what was written since counts: which part that is, registers know.

What stands outside outlives a reset: records in the backing store (they carry the number of the Tracker's clear, which
begins anew) and the epoch beside each sector that is reduced with first touch (:class:`hw.near_bank.BankGroupUnit`).
The node clears both before it arms the first epoch that needs them, unless software says that it did
(:class:`hw.memory_clear.MemoryClear`).

A block imports neither the node nor its configuration: each package can be used in another design, with the parameter
class that stands beside its block.
"""
