"""Formats of weights: what can be chosen, what is refused."""

from __future__ import annotations

import pytest

from naiad.contract.errors import InvalidArgument
from naiad_build.quantize.formats import FORMATS, chosen_format


def test_only_formats_that_look_at_activations_need_text() -> None:
    assert {name for name, each in FORMATS.items() if each.needs_calibration} == {
        "int4_awq", "int4_mixed", "int8_sq", "fp8",
    }  # fmt: skip


def test_four_bits_for_a_part_of_the_matrices_need_text_to_choose_it() -> None:
    assert not chosen_format("int4", group_size=32).needs_calibration
    assert chosen_format("int4", ratio=0.5).needs_calibration


def test_no_smooth_quant_is_none() -> None:
    assert chosen_format("int8_sq", smooth_quant=0).smooth_quant is None
    assert chosen_format("fp8", smooth_quant=0.5).smooth_quant == 0.5


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("int3", {}, "there is no format 'int3'; there are fp16, int8"),
        ("int8", {"group_size": 64}, "format int8 has no group size"),
        ("int4", {"group_size": 48}, "must be a power of two from 16"),
        ("int4", {"group_size": 0}, "must be a power of two from 16"),
        ("fp8", {"ratio": 0.5}, "format fp8 has no ratio"),
        ("int4", {"ratio": 0}, "ratio 0 must be above 0"),
        ("int4", {"ratio": float("nan")}, "ratio nan must be above 0"),
        ("int4", {"smooth_quant": 0.5}, "format int4 has no SmoothQuant"),
        ("int8_sq", {"smooth_quant": 1}, "alpha 1 must be at least 0"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(name: str, changes: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        chosen_format(name, **changes)  # type: ignore[arg-type]
