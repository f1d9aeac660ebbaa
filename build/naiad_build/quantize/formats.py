"""The formats of weights for the CPU engine, and what each is told to NNCF."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from naiad.contract.errors import InvalidArgument

__all__ = ["FORMATS", "FULL", "OpenVinoFormat", "chosen_format"]

_SMALLEST_GROUP, _LARGEST_GROUP = 16, 4096


@dataclass(frozen=True, slots=True)
class OpenVinoFormat:
    """How the matrices of a 16-bit model are written.

    Attributes:
        name: as in `--format`.
        title: for tables.
        weights: NNCF's mode of weight compression, or None for matrices that stay as they are.
        activations: NNCF's quantisation of weights and activations, `int8` or `fp8`, or None.
        group_size: weights that share a scale; -1 is a whole row.
        ratio: share of the matrices in 4 bits, the others are in 8; those that matter most, where calibrated.
        awq: activation-aware weight scaling (Lin et al. 2023, arXiv:2306.00978).
        scale_estimation: scales chosen for the least error on the calibration text.
        smooth_quant: how far outliers move from activations to weights, in (0, 1) (Xiao et al. 2022,
            arXiv:2211.10438); None leaves them.
    """

    name: str
    title: str
    weights: str | None = None
    activations: str | None = None
    group_size: int = -1
    ratio: float = 1.0
    awq: bool = False
    scale_estimation: bool = False
    smooth_quant: float | None = None

    @property
    def needs_calibration(self) -> bool:
        """Whether text is run through the model to make it."""
        return self.activations is not None or self.awq or self.scale_estimation or self.ratio < 1

    def settings(self) -> dict[str, str | float | bool | None]:
        """Return what the worker is told."""
        return {key: value for key, value in asdict(self).items() if key not in ("name", "title")}


FULL = "fp16"
"""The format that the others are made from."""

FORMATS: Mapping[str, OpenVinoFormat] = {
    each.name: each
    for each in (
        OpenVinoFormat(FULL, "FP16"),
        OpenVinoFormat("int8", "INT8 weights, a scale a row", weights="int8_asym"),
        OpenVinoFormat("int4", "INT4 weights, groups of 64", weights="int4_sym", group_size=64),
        OpenVinoFormat(
            "int4_awq",
            "INT4 weights, groups of 64, AWQ and scale estimation",
            weights="int4_asym",
            group_size=64,
            awq=True,
            scale_estimation=True,
        ),
        OpenVinoFormat(
            "int4_mixed",
            "80 % INT4 with AWQ, 20 % INT8",
            weights="int4_asym",
            group_size=64,
            ratio=0.8,
            awq=True,
            scale_estimation=True,
        ),
        OpenVinoFormat(
            "int8_sq", "INT8 weights and activations, SmoothQuant", activations="int8", smooth_quant=0.95
        ),
        OpenVinoFormat("fp8", "FP8 (E4M3) weights and activations", activations="fp8", smooth_quant=0.95),
    )
}


def chosen_format(
    name: str, *, group_size: int | None = None, ratio: float | None = None, smooth_quant: float | None = None
) -> OpenVinoFormat:
    """Return a format with some of its settings changed.

    Raises:
        InvalidArgument: there is no such format, or it has no such setting; says which there are.
    """
    if name not in FORMATS:
        raise InvalidArgument(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
    found = FORMATS[name]
    four_bits = (found.weights or "").startswith("int4")
    if group_size is not None:
        if not four_bits:
            raise InvalidArgument(f"format {name} has no group size: only the int4 ones do")
        if group_size != -1 and not (
            _SMALLEST_GROUP <= group_size <= _LARGEST_GROUP and group_size & (group_size - 1) == 0
        ):
            raise InvalidArgument(
                f"group size {group_size} must be a power of two from {_SMALLEST_GROUP} to {_LARGEST_GROUP}, "
                "or -1 for a scale a row"
            )
        found = replace(found, group_size=group_size)
    if ratio is not None:
        if not four_bits:
            raise InvalidArgument(f"format {name} has no ratio: only the int4 ones do")
        if not 0 < ratio <= 1:
            raise InvalidArgument(f"ratio {ratio:g} must be above 0 and at most 1")
        found = replace(found, ratio=ratio)
    if smooth_quant is not None:
        if found.activations is None:
            raise InvalidArgument(f"format {name} has no SmoothQuant: only those with activations do")
        if not 0 <= smooth_quant < 1:
            raise InvalidArgument(
                f"SmoothQuant's alpha {smooth_quant:g} must be at least 0 (off) and below 1"
            )
        found = replace(found, smooth_quant=smooth_quant or None)
    return found
