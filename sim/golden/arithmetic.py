"""Golden model of the near-bank arithmetic, on arrays of bit patterns.

Sources: IEEE 754-2019 (addition rounded to nearest even, minimumNumber, maximumNumber), RISC-V's canonical quiet NaN,
T3 section 4.3 (op-and-store) and the first-touch rule: the first update of an epoch acts as a store. Nothing of the
hardware is imported here; numpy's own floating point does the work.
"""

import numpy as np

BITS = {"fp16": 16, "bf16": 16, "fp32": 32, "int32": 32}
"""Width of an element of each data type."""
CANONICAL_NAN = {"fp16": 0x7E00, "bf16": 0x7FC0, "fp32": 0x7FC00000}
OPERATIONS = ("add", "min", "max")


def pattern_type(dtype: str) -> type[np.uint16] | type[np.uint32]:
    """Unsigned numpy type that holds one bit pattern of `dtype`."""
    return np.uint16 if BITS[dtype] == 16 else np.uint32


def to_float64(dtype: str, patterns: np.ndarray) -> np.ndarray:
    """Exact value of each bit pattern of a floating-point type."""
    if dtype == "fp16":
        return patterns.astype(np.uint16).view(np.float16).astype(np.float64)
    single = patterns.astype(np.uint32) << (16 if dtype == "bf16" else 0)
    with np.errstate(invalid="ignore"):
        return single.view(np.float32).astype(np.float64)


def is_nan(dtype: str, patterns: np.ndarray) -> np.ndarray:
    """Which patterns are NaN (never for int32)."""
    if dtype == "int32":
        return np.zeros(patterns.shape, bool)
    return np.isnan(to_float64(dtype, patterns))


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """BF16 patterns nearest to float64 `values`, ties to even; NaN gives the canonical one.

    One unit of the last of 8 significant bits is 2**(exponent - 7), and no smaller than the least subnormal.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        _, exponent = np.frexp(values)
        unit = np.maximum(exponent - 1, -126) - 7
        rounded = np.ldexp(np.rint(np.ldexp(values, -unit)), unit)
        patterns = rounded.astype(np.float32).view(np.uint32) >> 16
    patterns = np.where(np.isinf(values), np.where(values > 0, 0x7F80, 0xFF80), patterns)
    return np.where(np.isnan(values), CANONICAL_NAN["bf16"], patterns).astype(np.uint16)


def add(dtype: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b. The float64 sum has more than twice the bits of a 16-bit type plus two, so rounding twice is harmless."""
    with np.errstate(all="ignore"):
        if dtype == "int32":
            return a + b
        if dtype == "fp32":
            total = (a.view(np.float32) + b.view(np.float32)).view(np.uint32)
        elif dtype == "fp16":
            total = (to_float64(dtype, a) + to_float64(dtype, b)).astype(np.float16).view(np.uint16)
        else:
            total = round_to_bf16(to_float64(dtype, a) + to_float64(dtype, b))
    return np.where(is_nan(dtype, total), CANONICAL_NAN[dtype], total).astype(a.dtype)


def ordered_key(dtype: str, patterns: np.ndarray) -> np.ndarray:
    """Integers in the order of the numbers, with -0 below +0."""
    if dtype == "int32":
        return patterns.view(np.int32).astype(np.int64)
    sign = 1 << (BITS[dtype] - 1)
    wide = patterns.astype(np.int64)
    return np.where(wide & sign, -1 - (wide - sign), wide)


def extreme(operation: str, dtype: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """minimumNumber or maximumNumber: a NaN, quiet or signaling, loses to a number; two NaNs give the canonical one."""
    smaller = ordered_key(dtype, a) <= ordered_key(dtype, b)
    chosen = np.where(smaller == (operation == "min"), a, b)
    nan_a, nan_b = is_nan(dtype, a), is_nan(dtype, b)
    chosen = np.where(nan_a, b, np.where(nan_b, a, chosen))
    return np.where(nan_a & nan_b, CANONICAL_NAN.get(dtype, 0), chosen).astype(a.dtype)


def reduce(op: str, dtype: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Elementwise `op` ("add", "min", "max") of two arrays of patterns of `dtype` ("fp16", "bf16", "fp32", "int32").

    Raises :class:`ValueError` for an unknown operation or type.
    """
    if dtype not in BITS:
        raise ValueError(f"dtype must be one of {', '.join(BITS)}; got {dtype!r}")
    if op not in OPERATIONS:
        raise ValueError(f"op must be one of {', '.join(OPERATIONS)}; got {op!r}")
    a = np.ascontiguousarray(a).astype(pattern_type(dtype))
    b = np.ascontiguousarray(b).astype(pattern_type(dtype))
    return add(dtype, a, b) if op == "add" else extreme(op, dtype, a, b)


def identity(op: str, dtype: str) -> int:
    """Pattern e with reduce(op, dtype, e, x) == x for every number x."""
    if dtype == "int32":
        return {"add": 0, "min": 0x7FFFFFFF, "max": 0x80000000}[op]
    return 1 << (BITS[dtype] - 1) if op == "add" else CANONICAL_NAN[dtype]


def sector_result(op: str, dtype: str, old: bytes, new: bytes, mask: int, first: bool = False) -> bytes:
    """One 32-byte sector after an update (`op` also "store"); bit i of `mask` covers byte i, by whole elements.

    `first`: the update acts as a store, and the elements outside the mask become the identity of the operation.
    """
    merged = bytearray(old)
    if first and op != "store":
        size = BITS[dtype] // 8
        merged = bytearray(identity(op, dtype).to_bytes(size, "little") * (32 // size))
    if first or op == "store":
        result = new
    else:
        kind = pattern_type(dtype)
        result = reduce(op, dtype, np.frombuffer(old, kind), np.frombuffer(new, kind)).tobytes()
    for byte in range(32):
        if mask >> byte & 1:
            merged[byte] = result[byte]
    return bytes(merged)
