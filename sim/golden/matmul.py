"""Golden partial products of a tensor-parallel GEMM: what each GPU gives to the reduce-scatter.

The product (M x K) . (K x N) is split along K: GPU g multiplies columns of A by the same rows of B, and its full
M x N partial product is what the ring sums (T3 section 2.4).
"""

import numpy as np

from sim.golden.arithmetic import round_to_bf16, to_float64


def patterns_of(dtype: str, values: np.ndarray) -> np.ndarray:
    """Bit patterns of `values` rounded to `dtype` (fp16, bf16, fp32, int32; int32 takes whole numbers and wraps)."""
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)
    if dtype == "bf16":
        return round_to_bf16(values.astype(np.float64))
    if dtype == "fp32":
        return values.astype(np.float32).view(np.uint32)
    return values.astype(np.int64).astype(np.uint32)


def partial_products(gpus: int, m: int, n: int, k: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Bit patterns of shape (gpus, m, n): each GPU's product of random m x k and k x n matrices, rounded to `dtype`.

    `k` is the depth on one GPU. Floating elements are normally distributed and rounded to `dtype` first, the products
    are accumulated in float32 as a tensor core does; integers are drawn from -128..127.
    """
    products = []
    for _ in range(gpus):
        if dtype == "int32":
            whole_a, whole_b = rng.integers(-128, 128, (m, k)), rng.integers(-128, 128, (k, n))
            products.append(patterns_of(dtype, np.rint(whole_a.astype(np.float64) @ whole_b.astype(np.float64))))
            continue
        a = to_float64(dtype, patterns_of(dtype, rng.standard_normal((m, k)))).astype(np.float32)
        b = to_float64(dtype, patterns_of(dtype, rng.standard_normal((k, n)))).astype(np.float32)
        products.append(patterns_of(dtype, a @ b))
    return np.stack(products)
