"""A user's own arrays: from an npz file to bit patterns, checked, and back."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.errors import UsageError
from sim.files import replaced
from sim.golden.arithmetic import round_to_bf16

RANKS = (2, 3, 4, 8, 16)
"""Numbers of GPUs a user's arrays may be for."""
DTYPES = ("fp16", "bf16", "fp32", "int32")
LONGEST_ROW = 1024
"""Elements in a row of a chunk, at most."""
_BITS = {"fp16": 16, "bf16": 16, "fp32": 32, "int32": 32}


@dataclass(frozen=True)
class UserArray:
    """A user's array: `patterns`, unsigned bit patterns of shape (N, elements), and the numpy type `given`."""

    patterns: np.ndarray
    given: np.dtype

    def restored(self, patterns: np.ndarray) -> np.ndarray:
        """Other patterns of the same data type, in the numpy type the user gave: float32 for rounded bf16 too."""
        if self.given.itemsize == patterns.dtype.itemsize:
            return patterns.view(self.given)
        return (patterns.astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class Padded:
    """How a user's arrays are laid out: each of `gpus` chunks is `rows` rows of `columns` elements, zeros at the
    end."""

    gpus: int
    rows: int
    columns: int


def padding(gpus: int, elements: int) -> Padded:
    """Rows of at most 1024 elements to a chunk of arrays of `elements`."""
    chunk = elements // gpus
    columns = min(chunk, LONGEST_ROW)
    return Padded(gpus, -(-chunk // columns), columns)


def padded(x: np.ndarray) -> np.ndarray:
    """Bit patterns `x` of shape (N, elements) with every chunk filled up as :func:`padding` says; shape (N, N * rows,
    columns)."""
    gpus, elements = x.shape
    layout = padding(gpus, elements)
    filled = np.zeros((gpus, gpus, layout.rows * layout.columns), x.dtype)
    filled[:, :, : elements // gpus] = x.reshape(gpus, gpus, -1)
    return filled.reshape(gpus, gpus * layout.rows, layout.columns)


def chunk_elements(reduced: np.ndarray, elements: int) -> np.ndarray:
    """The first `elements` of each rank's chunk: without what :func:`padded` added."""
    return np.ascontiguousarray(reduced.reshape(len(reduced), -1)[:, :elements])


def load_inputs(path: Path, dtype: str) -> UserArray:
    """Array `x` of the npz file `path`, as bit patterns of `dtype`.

    Integers of the width of `dtype` are bit patterns as they are. float16 is taken for fp16 and float32 for fp32, by
    their bits; float32 for bf16 is rounded to nearest even. Anything else is a :class:`sim.errors.UsageError`.
    """
    array = load_array(path, dtype)
    _check_shape(array.patterns, path)
    return array


def load_array(path: Path, dtype: str) -> UserArray:
    """The same for an array of any shape."""
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}; got {dtype!r}")
    x = _read(path)
    return UserArray(_patterns(x, dtype, path), x.dtype.newbyteorder("="))


def _read(path: Path) -> np.ndarray:
    if not path.is_file():
        raise UsageError(f"{path} does not exist or is not a file")
    try:
        # Opened here, because numpy leaves the file open when it turns out not to be an archive.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UsageError(f"{path} is a single array, not an npz file with an array called x")
            with archive:
                if "x" not in archive.files:
                    found = ", ".join(archive.files) or "nothing"
                    raise UsageError(f"{path} has no array called x (it holds {found})")
                return np.asarray(archive["x"])
    except UsageError:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError) as error:
        raise UsageError(f"{path} is not a readable npz file ({_one_line(error)})") from error
    except Exception as error:  # zlib.error and struct.error of a damaged archive
        raise UsageError(f"{path} is damaged ({_one_line(error)})") from error


def _check_shape(x: np.ndarray, path: Path) -> None:
    if x.ndim != 2:
        raise UsageError(f"x in {path} must have shape (N, elements), got {x.shape}")
    ranks, elements = x.shape
    if ranks not in RANKS:
        raise UsageError(f"the first dimension of x in {path} is the number of GPUs, one of {RANKS}; got {ranks}")
    if elements == 0 or elements % ranks:
        raise UsageError(
            f"the second dimension of x in {path} must be a positive multiple of the {ranks} GPUs, got {elements}"
        )


def _patterns(x: np.ndarray, dtype: str, path: Path) -> np.ndarray:
    bits = _BITS[dtype]
    unsigned = np.dtype(np.uint16 if bits == 16 else np.uint32)
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if x.dtype.kind in "iu" and x.dtype.itemsize * 8 == bits:
        return np.ascontiguousarray(x).view(unsigned)
    if (dtype, x.dtype) in (("fp16", np.dtype(np.float16)), ("fp32", np.dtype(np.float32))):
        return np.ascontiguousarray(x).view(unsigned)
    if dtype == "bf16" and x.dtype == np.float32:
        return round_to_bf16(x.astype(np.float64))
    allowed = f"{bits}-bit integers (bit patterns)"
    allowed += {"fp16": " or float16", "bf16": " or float32 (rounded)", "fp32": " or float32", "int32": ""}[dtype]
    raise UsageError(f"x in {path} must hold {allowed} for {dtype}, got {x.dtype}")


def _one_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def save_output(path: Path, y: np.ndarray) -> None:
    """Write `y` as the array called y of the npz file `path`, all of it or nothing."""
    with replaced(path, ".npz") as draft:
        np.savez_compressed(draft, y=y)
