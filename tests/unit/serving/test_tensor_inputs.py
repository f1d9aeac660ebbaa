"""Reading tensors at the edge (C02-C05): right values come through, wrong ones are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.contract.errors import InvalidArgument
from naiad.serving.tensor_inputs import TensorInputs, decode_text


def one(value: Any, dtype: Any = np.float32) -> TensorInputs:
    return TensorInputs({"x": np.array([[value]], dtype=dtype)}, 1)


def texts(*items: Any, batch_size: int = 1) -> TensorInputs:
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return TensorInputs({"x": array.reshape(batch_size, -1)}, batch_size)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.5, 1.5, -1e30, 1e30])
def test_c05_a_number_outside_its_range_is_refused_with_the_range(value: float) -> None:
    with pytest.raises(InvalidArgument, match="x must be from 0 to 1, not"):
        one(value).number("x", 0, minimum=0.0, maximum=1.0)


def test_c05_a_lower_bound_may_be_excluded() -> None:
    with pytest.raises(InvalidArgument, match="x must be above 0 to 2, not 0"):
        one(0.0).number("x", 0, minimum=0.0, maximum=2.0, above=True)
    assert one(0.25).number("x", 0, minimum=0.0, maximum=2.0, above=True) == 0.25


@pytest.mark.parametrize("value", [0, -1, -(2**31), 11, 2**31 - 1])
def test_c05_an_integer_outside_its_range_is_refused_with_the_range(value: int) -> None:
    with pytest.raises(InvalidArgument, match=f"x must be from 1 to 10, not {value}"):
        one(value, np.int32).integer("x", 0, minimum=1, maximum=10)


def test_the_bounds_of_a_range_belong_to_it() -> None:
    assert one(2**64 - 1, np.uint64).integer("x", 0, minimum=0, maximum=2**64 - 1) == 2**64 - 1
    assert one(1, np.int32).integer("x", 0, minimum=1, maximum=1) == 1
    assert one(1.0).number("x", 0, minimum=0.0, maximum=1.0) == 1.0


def test_what_is_not_given_is_none_or_empty() -> None:
    nothing = TensorInputs({}, 1)
    assert nothing.integer("x", 0, minimum=0, maximum=1) is None
    assert nothing.number("x", 0, minimum=0, maximum=1) is None
    assert nothing.flag("x") is None
    assert nothing.text("x", 0) is None
    assert nothing.row("x", 0) is None
    assert nothing.texts("x", 0) == ()
    assert not nothing.given("x")


@pytest.mark.parametrize("shape", [(1, 0), (1, 2)])
def test_c03_a_present_tensor_without_exactly_one_value_is_refused(shape: tuple[int, ...]) -> None:
    inputs = TensorInputs({"x": np.zeros(shape, dtype=np.int32)}, 1)
    with pytest.raises(InvalidArgument, match=f"x must hold exactly one value per request, not {shape[1]}"):
        inputs.integer("x", 0, minimum=0, maximum=1)
    with pytest.raises(InvalidArgument, match="exactly one value"):
        inputs.flag("x")


def test_c03_an_empty_list_is_as_none() -> None:
    empty = TensorInputs({"x": np.zeros((1, 0), dtype=np.object_)}, 1)
    assert empty.texts("x", 0) == ()
    assert empty.row("x", 0) is None


@pytest.mark.parametrize("shape", [(), (1, 1), (3, 1)])
def test_c02_a_first_dimension_that_is_not_the_batch_is_refused(shape: tuple[int, ...]) -> None:
    inputs = TensorInputs({"x": np.zeros(shape, dtype=np.int32)}, 2)
    for read in (lambda: inputs.integer("x", 1, minimum=0, maximum=1), lambda: inputs.row("x", 0)):
        with pytest.raises(InvalidArgument, match=r"x has shape .* must be the batch size 2"):
            read()


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_each_row_has_its_own_value_with_or_without_an_inner_dimension(shape: tuple[int, ...]) -> None:
    inputs = TensorInputs({"x": np.array([7, 8], dtype=np.int32).reshape(shape)}, 2)
    assert [inputs.integer("x", row, minimum=0, maximum=9) for row in (0, 1)] == [7, 8]


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"abc\xc3", b"\xed\xa0\x80"])
def test_c04_invalid_utf8_is_refused_by_name(raw: bytes) -> None:
    with pytest.raises(InvalidArgument, match="x is not valid UTF-8"):
        texts(raw).text("x", 0)
    with pytest.raises(InvalidArgument, match="x is not valid UTF-8"):
        texts(b"fine", raw).texts("x", 0)


def test_c04_nul_bytes_are_kept() -> None:
    assert texts(b"a\x00b\x00").text("x", 0) == "a\x00b\x00"
    assert texts(b"\x00", b"z\x00").texts("x", 0) == ("\x00", "z\x00")


@given(st.text())
def test_any_text_comes_through_byte_exact(text: str) -> None:
    assert decode_text("x", text.encode()) == text
    assert texts(text.encode()).text("x", 0) == text


def test_something_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="x must hold strings"):
        decode_text("x", 3)


def test_empty_strings_of_a_list_are_dropped() -> None:
    inputs = texts(b"", b"a", b"", b"b", b"", b"", batch_size=2)
    assert inputs.texts("x", 0) == ("a",)
    assert inputs.texts("x", 1) == ("b",)


def test_a_row_keeps_its_inner_shape() -> None:
    inputs = TensorInputs({"x": np.arange(12).reshape(2, 2, 3)}, 2)
    row = inputs.row("x", 1)
    assert row is not None
    assert row.tolist() == [[6, 7, 8], [9, 10, 11]]


@pytest.mark.parametrize(
    ("new", "old", "expected"), [(3, None, 3), (None, 3, 3), (3, 3, 3), (None, None, None)]
)
def test_either_spelling_of_a_setting_is_read(new: int | None, old: int | None, expected: int | None) -> None:
    values = {"min_tokens": new, "min_length": old}
    tensors: dict[str, Any] = {
        name: np.array([[value]], dtype=np.int32) for name, value in values.items() if value is not None
    }
    assert TensorInputs(tensors, 1).alias("min_tokens", "min_length", 0, maximum=9) == expected


def test_two_spellings_that_disagree_are_refused_with_both_names_and_values() -> None:
    tensors: dict[str, Any] = {"seed": np.array([[1]]), "random_seed": np.array([[2]])}
    with pytest.raises(InvalidArgument, match="seed and random_seed are the same setting but hold 1 and 2"):
        TensorInputs(tensors, 1).alias("seed", "random_seed", 0, maximum=9)


def test_refusals_use_the_name_that_the_caller_used() -> None:
    inputs = TensorInputs({"x": np.array([[5]])}, 1, shown={"x": "top_x"})
    with pytest.raises(InvalidArgument, match="top_x must be from 0 to 1"):
        inputs.integer("x", 0, minimum=0, maximum=1)
    with pytest.raises(InvalidArgument, match="top_x must be from 0 to 1"):
        inputs.number("x", 0, minimum=0, maximum=1)
    with pytest.raises(InvalidArgument, match="top_x has shape"):
        TensorInputs({"x": np.array([[5]])}, 2, shown={"x": "top_x"}).row("x", 0)
