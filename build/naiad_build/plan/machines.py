"""The GPUs that profiles may name: memory, bandwidth and arithmetic, from NVIDIA's data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from naiad_build.plan.precisions import Arithmetic

__all__ = ["GPUS", "Gpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        name: what a profile calls it.
        title: what people call it.
        memory_mib: what the driver reports as total; less than the label says, since ECC takes some.
        bandwidth_gb_s: of its memory, GB a second.
        compute_capability: (major, minor).
        dense_tflops: 10^12 operations a second without sparsity, by kind of arithmetic.
    """

    name: str
    title: str
    memory_mib: int
    bandwidth_gb_s: float
    compute_capability: tuple[int, int]
    dense_tflops: dict[Arithmetic, float]

    @property
    def memory_bytes(self) -> int:
        """Total memory."""
        return self.memory_mib * 2**20


# Memory as nvidia-smi shows it; the rest from NVIDIA's data sheets of each product, whose figures "with
# sparsity" are halved.
GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            "a100_80gb", "A100 SXM 80 GB", 81_920, 2_039, (8, 0),
            {Arithmetic.BITS_16: 312, Arithmetic.INT8: 624},
        ),
        Gpu(
            "a100_40gb", "A100 SXM 40 GB", 40_960, 1_555, (8, 0),
            {Arithmetic.BITS_16: 312, Arithmetic.INT8: 624},
        ),
        Gpu(
            "l40s", "L40S 48 GB", 46_068, 864, (8, 9),
            {Arithmetic.BITS_16: 362, Arithmetic.INT8: 733, Arithmetic.FP8: 733},
        ),
        Gpu(
            "h100", "H100 SXM 80 GB", 81_559, 3_350, (9, 0),
            {Arithmetic.BITS_16: 989, Arithmetic.INT8: 1_979, Arithmetic.FP8: 1_979},
        ),
        Gpu(
            "h200", "H200 SXM 141 GB", 143_771, 4_800, (9, 0),
            {Arithmetic.BITS_16: 989, Arithmetic.INT8: 1_979, Arithmetic.FP8: 1_979},
        ),
    )
}  # fmt: skip
