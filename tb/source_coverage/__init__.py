"""Coverage of Amaranth source code: which statements, branches, FSM states and FSM arcs a simulation has executed.

A simulator sees generated Verilog, in which the lines of the Amaranth source can no longer be told apart. Here the
elaborated design itself is instrumented, before it is converted:

1. :class:`~.instrument.Instrumented` wraps a component. Its ports stay the same; inside, every list of statements that
   runs under one condition sets one sticky bit. `source_coverage_writer.sv` belongs to the simulation and writes the
   bits to `source_coverage.txt` in the working directory when the simulation ends.
2. :class:`~.points.PointMap` says which source lines each bit stands for; :class:`~.points.SourceCoverage` takes in
   such files of any number of runs, of different designs, and merges them by source line.
3. :func:`~.lcov.lcov_info` renders the sum for lcov, genhtml and whatever else reads its format;
   :class:`~.exclusions.Exclusions` takes argued exceptions out of the count.

The package needs Amaranth and numpy and nothing else of this project.
"""
