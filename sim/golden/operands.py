"""The partial GEMM output of one GPU as a function of seed, GPU and sector, in numpy. Source:
`sim/models/operand_array.sv`, whose first lines document the function; nothing else is shared with it."""

import numpy as np

SPECIAL = np.frombuffer(bytes.fromhex("00008000000103FF83FF04007BFFFBFF7C00FC007E003C00BC003C013BFFBBFF"), ">u2")
"""The 16 special numbers, in hexadecimal one after the other."""
WORDS = 8


def lowbias32(value: np.ndarray) -> np.ndarray:
    """C. Wellons' 32-bit mixing function."""
    x = value.astype(np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def operand_elements(seed: int, gpu: int, sectors: int) -> np.ndarray:
    """FP16 bit patterns of sectors 0 to `sectors` - 1, 16 to a sector."""
    key = lowbias32(np.array([seed * 64 + gpu & 0xFFFFFFFF], np.uint32))
    words = lowbias32(key ^ np.arange(WORDS * sectors, dtype=np.uint32))
    halves = words.astype("<u4").view("<u2")
    exponent = 8 + (halves >> 10 & 15)
    plain = (halves & 0x8000) | exponent << 10 | (halves & 0x3FF)
    return np.where(halves >> 4 == 0xABC, SPECIAL[halves & 15], plain).astype(np.uint16)
