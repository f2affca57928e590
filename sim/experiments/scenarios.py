"""The end-to-end scenarios of `t3rtl regress` (`make sim`): each the smallest run that still shows its point.

Every result is compared with the golden ring reduce-scatter in every bit and every counter with its closed form
(:mod:`sim.experiments.check`). What differs in the hardware costs a build of the GPU, so there are only six: presets
`paper` (up to 8 GPUs), `tiny`, `quad`, and `wide` (16 GPUs, and a Tracker overflow with more blocks than `paper` has
places for); and `paper` with compute units that run plans, for all other programs, and with one link to a switch.

Shapes: M, N, K with M / gpus rows to a chunk. K is chosen such that the GEMM and the reduce-scatter take about equally
long where the figures of overlap are wanted, and 0 (no compute time) where only the reduction is.
"""

from typing import Any

from sim.experiments.catalogue import collective as program
from sim.experiments.catalogue import shape as experiment
from sim.experiments.spec import Spec


def _scenario(name: str, gpus: int, shape: tuple[int, int, int], **options: Any) -> Spec:
    return experiment(name=name, gpus=gpus, shape=shape, **options)


def _plain(name: str, gpus: int, rows: int, columns: int, **options: Any) -> Spec:
    """A run of the reduction alone, `rows` rows to a chunk."""
    return _scenario(name, gpus, (gpus * rows, columns, options.pop("depth", 0)), alone=False, **options)


OVERLAP: dict[str, Any] = {"tile": (32, 128), "shape": (256, 256, 832)}
"""Four GPUs on which GEMM and reduce-scatter are balanced."""

_POLICIES = (
    ("round-robin", "auto"),
    ("compute-first", "auto"),
    ("mca", "5"),
    ("mca", "10"),
    ("mca", "30"),
    ("mca", "none"),
    ("mca", "auto"),
)

_POLICY_RUNS = tuple(
    _scenario(
        f"policy-{policy}" + (f"-{threshold}" if policy == "mca" else ""),
        4,
        policy=policy,
        threshold=threshold,
        **OVERLAP,
    )
    for policy, threshold in _POLICIES
)

_GPU_RUNS = (
    _scenario("gpus-2", 2, (256, 256, 512), tile=(64, 128)),
    _scenario("gpus-3", 3, (192, 256, 700), tile=(32, 128)),
    _scenario("gpus-8", 8, (512, 128, 900), tile=(32, 128)),
    _plain("gpus-16", 16, 16, 128, preset="wide", tile=(16, 64), depth=64),
)

# Every WF count, DMA block size, type and operation, in runs that also differ in the way round and the first value.
_TILE_RUNS = tuple(
    _plain(
        f"wfs-{wfs}-block-{block}-{dtype}-{op}",
        gpus,
        rows,
        96,
        tile=(4 * wfs, 64),
        wfs=wfs,
        dma_block=block,
        dtype=dtype,
        op=op,
        direction=direction,
        initial=initial,
    )
    for gpus, rows, wfs, block, dtype, op, direction, initial in (
        (2, 12, 1, 1, "fp16", "add", "cw", "first-touch"),
        (4, 16, 2, 1, "bf16", "add", "ccw", "first-touch"),
        (3, 24, 3, 2, "fp32", "add", "cw", "zeroing"),
        (4, 32, 4, 3, "int32", "add", "ccw", "zeroing"),
        (4, 20, 5, 4, "fp16", "min", "cw", "zeroing"),
        (3, 24, 6, 5, "bf16", "max", "ccw", "first-touch"),
        (4, 28, 7, 6, "fp32", "min", "cw", "first-touch"),
        (4, 32, 8, 7, "int32", "max", "ccw", "zeroing"),
        (4, 32, 8, 8, "fp16", "max", "cw", "first-touch"),
        (2, 64, 8, 2, "bf16", "min", "ccw", "zeroing"),
        (3, 32, 8, 1, "fp32", "max", "cw", "zeroing"),
        (4, 30, 6, 3, "int32", "min", "cw", "first-touch"),
    )
)

_SHAPE_RUNS = (
    _plain("ragged-rows", 4, 75, 128, tile=(32, 64), depth=64),
    _plain("ragged-columns", 4, 64, 200, tile=(32, 64), depth=64),
    _plain("ragged-both", 4, 83, 171, tile=(64, 64), dma_block=3, depth=64),
    _plain("ragged-both-fp32", 3, 45, 107, tile=(32, 64), dtype="fp32", wfs=4, direction="ccw"),
    _plain("tile-larger-than-chunk", 4, 20, 40, tile=(128, 128), depth=16),
    _plain("one-row", 4, 1, 33, tile=(8, 64)),
)

_STALLED_RUNS = (
    _plain("stalls-gpus-2", 2, 64, 128, tile=(32, 64), stalls=30, depth=64),
    _plain("stalls-gpus-4-ragged", 4, 45, 104, tile=(32, 64), stalls=30, depth=64, policy="round-robin"),
    _plain("stalls-gpus-8", 8, 32, 64, tile=(32, 64), stalls=30, initial="zeroing", direction="ccw"),
)

_TINY_RUNS = (
    _plain("tiny-gpus-2", 2, 32, 64, preset="tiny", tile=(16, 32), depth=64),
    _plain("tiny-gpus-4", 4, 16, 72, preset="tiny", tile=(16, 32), policy="round-robin", dma_block=1),
    _plain("tiny-gpus-4-stalls", 4, 16, 64, preset="tiny", tile=(16, 32), stalls=30, depth=16),
)

_OTHER_RUNS = (
    _plain("zeroing-gpus-4", 4, 64, 128, tile=(32, 64), initial="zeroing", depth=64),
    _plain("counter-clockwise-gpus-4", 4, 64, 128, tile=(32, 64), direction="ccw", depth=64),
    _scenario("quad-gpus-4", 4, (512, 256, 832), preset="quad", tile=(64, 128)),
    _scenario("two-lanes-gpus-4", 4, (512, 256, 832), settings=(("channels", 2), ("lanes", 2)), tile=(64, 128)),
    _plain("overflow-gpus-2", 2, 400, 512, tile=(16, 16), schedule="sweep", overflow=True),
    _plain("overflow-gpus-4", 4, 200, 512, preset="wide", tile=(8, 16), schedule="sweep", overflow=True, dma_block=4),
)

_COLLECTIVE_RUNS = tuple(
    _plain(f"{collective}-gpus-{gpus}", gpus, 40, 100, collective=collective, tile=(16, 32), wfs=4, dtype=dtype)
    for collective, gpus, dtype in (
        ("ring-all-gather", 4, "fp16"),
        ("ring-all-reduce", 2, "int32"),
        ("ring-all-reduce", 4, "fp16"),
    )
)


def _program(collective: str, gpus: int, rows: int, columns: int = 40, depth: int = 0, **options: Any) -> Spec:
    """A program with `rows` rows to a GPU, ragged in both directions unless said otherwise."""
    label = options.pop("label", "")
    usual: dict[str, Any] = {"tile": (16, 32), "wfs": 4, "name": f"{collective}-{gpus}{label}"}
    return program(collective, gpus, shape=(gpus * rows, columns, depth), **usual | options)


FINE = {"fine": True}
# All on one hardware, that of `paper` with more ranges, whose GPUs run plans. Some are what a published system does, as
# far as a ring goes: FLUX takes tiles rank-shifted, with gates for each tile row; Pallas' collective matmul waits for
# whole shards; ConCCL sends by doorbell beside a GEMM that has nothing to do with it; Uncut-GEMMs fetch tiles along a
# chain and reduce C lazily. Three GPUs on a ring have all links of a mesh.
_PROGRAM_RUNS = (
    _program("ring-all-gather-gemm", 4, 20, 40, 40, choices=FINE, dtype="int32", tile_order="shifted", label="-flux"),
    _program("ring-reduce-scatter", 4, 20, 40, 32, tile_order="shifted", label="-flux"),
    _program("ring-all-gather-gemm", 2, 24, 40, 40, dtype="int32", label="-pallas"),
    _program("ring-all-gather-gemm", 3, 20, 40, 40, tile_order="interleaved"),
    _program("ring-all-gather-gemm", 3, 20, 40, 40, choices=FINE, stalls=20, label="-stalls"),
    _program("split-k-reduce-scatter", 3, 20, 40, 32, dtype="int32", tile_order="swizzled"),
    _program("split-k-reduce-scatter", 4, 20, 40, 32, choices={"splits": 3}, label="-fp16"),
    _program("direct-reduce-scatter", 3, 20, tile_order="shifted", dtype="bf16"),
    _program("ring-reduce-scatter-both", 4, 40, dma_block=1),
    _program("ring-all-gather-both", 4, 40),
    _program("ring-all-reduce", 3, 20, 40, 32, choices={"residual": True}, label="-residual"),
    _program("broadcast-chain", 3, 20, choices={"pieces": 3, "root": 1}),
    _program("broadcast-chain", 3, 20, 40, 32, choices={"pieces": 3, "gemm": True}, label="-uncut"),
    _program("broadcast-tree", 3, 20, choices={"pieces": 2}),
    _program("direct-all-gather", 3, 20),
    _program("direct-all-reduce", 3, 20, 40, 32, dtype="int32"),
    _program("direct-all-gather-gemm", 3, 20, 40, 40, choices=FINE, dtype="int32"),
    _program("all-to-all", 3, 20, dtype="fp32"),
    _program("all-to-all-dma", 3, 20),
    _program("direct-all-gather", 3, 20, depth=32, independent=True, label="-conccl"),
    _program("all-to-all-dma", 2, 20, depth=32, independent=True, label="-conccl"),
    _program("direct-all-gather-gemm", 3, 20, 40, 40, choices=FINE, dtype="int32", wiring="switch", label="-switch"),
)

SCENARIOS: tuple[Spec, ...] = (
    # The simulator that is built in the shortest time first, so that a row appears soon; then those that take longest,
    # and one of each hardware before any other, so that two processes do not wait for one build.
    _TINY_RUNS[0],
    _GPU_RUNS[0],
    _OTHER_RUNS[2],
    _GPU_RUNS[3],
    _PROGRAM_RUNS[0],
    *_GPU_RUNS[1:3],
    *_POLICY_RUNS,
    *_TILE_RUNS,
    *_SHAPE_RUNS,
    *_COLLECTIVE_RUNS,
    *_PROGRAM_RUNS[1:],
    *_STALLED_RUNS,
    *_TINY_RUNS[1:],
    *_OTHER_RUNS[:2],
    *_OTHER_RUNS[3:],
)
