"""Classes of the near-bank ALU's operands, found for a million operations at once."""

import numpy as np

from hw.messages import AluOperation, DataType
from hw.near_bank.alu import AluOperand
from tb.drivers.payload import unpack
from tb.functional_coverage.plan import ALU, ALU_CONTROL, FLOAT_CLASSES, INTEGER_CLASSES

_EXPONENT_BITS = {"fp16": 5, "bf16": 8, "fp32": 8}
_FULL_MASK = 0xFFFFFFFF


def classify(dtype: str, patterns: np.ndarray) -> np.ndarray:
    """Index into FLOAT_CLASSES or INTEGER_CLASSES of each bit pattern."""
    if dtype == "int32":
        signed = patterns.view(np.int32)
        special = {0: "zero", 1: "one", -1: "minus one", 2**31 - 1: "largest", -(2**31): "smallest"}
        classes = np.where(signed > 0, INTEGER_CLASSES.index("positive"), INTEGER_CLASSES.index("negative"))
        for value, name in special.items():
            classes[signed == value] = INTEGER_CLASSES.index(name)
        return classes
    width = 8 * patterns.dtype.itemsize
    fraction_bits = width - 1 - _EXPONENT_BITS[dtype]
    top = (1 << _EXPONENT_BITS[dtype]) - 1
    exponent = patterns >> fraction_bits & top
    fraction = patterns & (1 << fraction_bits) - 1
    negative = (patterns >> (width - 1)).astype(int)
    kind = np.select([(exponent == 0) & (fraction == 0), exponent == 0, exponent < top, fraction == 0], [0, 2, 4, 6], 8)
    quiet = fraction >> (fraction_bits - 1) == 1
    return np.where(kind < 8, kind + negative, np.where(quiet, 8, 9))


def sample_operations(operands: list[int], old: np.ndarray, new: np.ndarray) -> None:
    """Sample every operation: `old` and `new` are bytes, one row of 32 per operation."""
    words = np.array(operands, np.uint64)
    for word in np.unique(words).tolist():
        operand = unpack(AluOperand, word)
        dtype = DataType(operand["dtype"]).name.lower()
        operation = AluOperation(operand["operation"]).name.lower()
        whole = "whole sector" if operand["mask"] == _FULL_MASK else "part"
        first = operand["first"] and operation != "store"
        ALU_CONTROL.sample(dtype, operation, whole, "first" if first else "later")
        if operation == "store" or first or whole != "whole sector":
            continue
        chosen = words == word
        kind = np.uint16 if dtype in ("fp16", "bf16") else np.uint32
        names = INTEGER_CLASSES if dtype == "int32" else FLOAT_CLASSES
        sides = [classify(dtype, np.ascontiguousarray(side[chosen]).view(kind).reshape(-1)) for side in (old, new)]
        for pair in np.unique(sides[0] * len(names) + sides[1]).tolist():
            ALU[dtype].sample(operation, names[pair // len(names)], names[pair % len(names)])
