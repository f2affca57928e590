"""A user's own arrays for any of the calls of PyTorch's distributed package: from an npz file to what GPUs are given,
and from what they are left with to the call's result, in its layout (:mod:`sim.golden.nccl`)."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.errors import UsageError
from sim.experiments.user_arrays import RANKS, UserArray, load_array, padding
from sim.golden import nccl


class Call(NamedTuple):
    """A call's name in :mod:`sim.golden.nccl`, and the program that does its work; `reduces`: it has an operation;
    `cut`: a rank's tensor is cut into a chunk for every rank."""

    name: str
    program: str
    reduces: bool = False
    cut: bool = True


CALLS = {
    "reduce-scatter": Call("reduce_scatter_tensor", "ring-reduce-scatter", reduces=True),
    "all-gather": Call("all_gather_into_tensor", "ring-all-gather", cut=False),
    "all-reduce": Call("all_reduce", "ring-all-reduce", reduces=True),
    "all-to-all": Call("all_to_all_single", "all-to-all-dma"),
}


@dataclass(frozen=True)
class Tensors:
    """What `call` is given: `array`, patterns of shape (N, ...). Each rank gives and gets chunks of `elements`, which
    are kept as `rows` x `columns`, zeros at the end."""

    call: Call
    array: UserArray
    elements: int
    rows: int
    columns: int

    @property
    def gpus(self) -> int:
        """The number of ranks."""
        return len(self.array.patterns)

    def inputs(self) -> np.ndarray:
        """What each rank gives, chunk after chunk; shape (N, elements)."""
        flat = self.array.patterns.reshape(self.gpus, -1)
        chunks = self.gpus if self.call.cut else 1
        flat = np.pad(flat, ((0, 0), (0, chunks * self.elements - flat.shape[1])))
        filled = np.zeros((self.gpus, chunks, self.rows * self.columns), flat.dtype)
        filled[:, :, : self.elements] = flat.reshape(self.gpus, chunks, -1)
        return filled.reshape(self.gpus, -1)

    def result(self, held: np.ndarray) -> np.ndarray:
        """The call's result, from what the ranks hold."""
        shape = nccl.result_shape(self.call.name, self.array.patterns.shape)
        chunks = held.reshape(self.gpus, -1, self.rows * self.columns)[:, :, : self.elements]
        flat = chunks.reshape(self.gpus, -1)[:, : int(np.prod(shape[1:]))]
        return np.ascontiguousarray(flat).reshape(shape)

    def golden(self, dtype: str, op: str) -> np.ndarray:
        """The call's result by its definition."""
        operation = (dtype, op) if self.call.reduces else ()
        answer: np.ndarray = getattr(nccl, self.call.name)(self.array.patterns, *operation)
        return answer


def load_tensors(path: Path, dtype: str, collective: str) -> Tensors:
    """Array `x` of npz file `path` for `collective` of :data:`CALLS`, types as of
    :func:`sim.experiments.user_arrays.load_inputs`. Raises :class:`sim.errors.UsageError` for what the call cannot
    take."""
    if collective not in CALLS:
        raise UsageError(f"collective must be one of {', '.join(CALLS)}; got {collective!r}")
    call = CALLS[collective]
    array = load_array(path, dtype)
    shape = array.patterns.shape
    if len(shape) < 2 or shape[0] not in RANKS or not array.patterns.size:
        raise UsageError(f"x in {path} must have shape (N, ...) for N = {', '.join(map(str, RANKS))} GPUs, got {shape}")
    try:
        nccl.result_shape(call.name, shape)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    each = array.patterns[0].size
    elements = -(-each // shape[0]) if call.cut else each
    layout = padding(1, elements)
    return Tensors(call, array, elements, layout.rows, layout.columns)


def tensors_of(path: str, dtype: str, program: str) -> Tensors:
    """As :func:`load_tensors`, by the program that does the work of a call."""
    return load_tensors(Path(path), dtype, next(name for name, call in CALLS.items() if call.program == program))
