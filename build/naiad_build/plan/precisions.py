"""Number formats of weights and KV cache: their size, and what they need of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["KV_BYTES", "PRECISIONS", "Arithmetic", "Precision"]


class Arithmetic(str, Enum):
    """What matrix products are computed in."""

    BITS_16 = "bits_16"
    INT8 = "int8"
    FP8 = "fp8"


@dataclass(frozen=True, slots=True)
class Precision:
    """A format of the layers' matrices; embedding, output matrix and norms keep 16 bits.

    Attributes:
        name: TensorRT-LLM's `qformat`, or `float16` and `bfloat16`.
        bytes_per_parameter: with the scales of groups; those of channels and tensors are below 0.1 %.
        arithmetic: of the matrix products: weights alone are smaller in the `wo` and `awq` formats.
        compute_capability: least that TensorRT-LLM's engine path needs (its support matrix and ModelOpt's).
    """

    name: str
    bytes_per_parameter: float
    arithmetic: Arithmetic
    compute_capability: tuple[int, int]


_AWQ_BLOCK = 128  # quantize.py's default of --awq_block_size; a 16-bit scale each

PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision("float16", 2, Arithmetic.BITS_16, (7, 5)),
        Precision("bfloat16", 2, Arithmetic.BITS_16, (8, 0)),
        Precision("fp8", 1, Arithmetic.FP8, (8, 9)),
        Precision("int8_sq", 1, Arithmetic.INT8, (8, 0)),
        Precision("int8_wo", 1, Arithmetic.BITS_16, (8, 0)),
        Precision("int4_awq", 0.5 + 2 / _AWQ_BLOCK, Arithmetic.BITS_16, (8, 0)),
        Precision("w4a8_awq", 0.5 + 2 / _AWQ_BLOCK, Arithmetic.FP8, (8, 9)),
    )
}
KV_BYTES: dict[str, int] = {"float16": 2, "bfloat16": 2, "fp8": 1, "int8": 1}
"""Bytes of a number in the KV cache, by format."""
