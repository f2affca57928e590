"""What a block would be as hardware: gates, area, longest paths and LUTs, from open tools and libraries.

:func:`hw.synthesis.measure.measure_design` measures one block, :mod:`hw.synthesis.report` tells of all.
"""
