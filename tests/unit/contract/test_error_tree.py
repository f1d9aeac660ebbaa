"""Errors survive the trip as text, on their own or inside Triton's words."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.contract import errors
from naiad.contract.errors import InternalError, InvalidArgument, NaiadError, format_error, parse_error

LEAVES: list[type[NaiadError]] = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, NaiadError) and found is not NaiadError
]
GRPC_STATUSES = {
    "INVALID_ARGUMENT", "UNIMPLEMENTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL",
}  # fmt: skip
# How Triton 2.51's core, Python backend, frontends and client wrap an error's text.
WRAPPINGS = [
    "{}",
    "in ensemble 'ensemble', {}",
    "Failed to process the request(s) for model instance 'tensorrt_llm_0_0', message: {}",
    "[StatusCode.UNAVAILABLE] {}",
    "[request id: 17] {}",
    "onnx runtime said [1, 2] and (x) before; {}",
]

by_leaf = pytest.mark.parametrize("kind", LEAVES, ids=[kind.__name__ for kind in LEAVES])


def make(kind: type[NaiadError], *, partial: bool) -> NaiadError:
    if kind is InternalError:
        return InternalError(partial=partial)
    return kind("input_ids is [1, 2]; see (this)\nand that", partial=partial)


def same(one: NaiadError | None, other: NaiadError) -> bool:
    assert one is not None
    return (type(one), one.message, one.partial, str(one)) == (
        type(other), other.message, other.partial, str(other),
    )  # fmt: skip


def test_the_tree_has_the_leaves_it_documents():
    assert {kind.__name__ for kind in LEAVES} == set(errors.__all__) - {
        "NaiadError", "format_error", "parse_error",
    }  # fmt: skip
    documented = errors.__doc__ or ""
    assert all(f"── {kind.__name__} " in documented for kind in LEAVES)


def test_every_code_names_one_kind_of_error():
    codes = [kind.code for kind in LEAVES]
    assert len(codes) == len(set(codes))


@by_leaf
def test_a_leaf_states_all_a_caller_needs(kind: type[NaiadError]):
    assert kind.code.isupper()
    assert kind.grpc_status in GRPC_STATUSES
    assert kind.retryable == (kind.grpc_status == "UNAVAILABLE")


@by_leaf
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_an_error_survives_the_trip_as_text(kind: type[NaiadError], partial: bool, wrapping: str):
    error = make(kind, partial=partial)
    assert same(parse_error(wrapping.format(format_error(error))), error)


@given(st.text(), st.booleans())
def test_any_message_survives_the_trip(message: str, partial: bool):
    error = InvalidArgument(message, partial=partial)
    returned = parse_error(format_error(error))
    if message.endswith(" (partial answer was delivered)") and not partial:
        return  # the one message that reads as something else
    assert same(returned, error)


def test_the_form_is_the_documented_one():
    assert format_error(InvalidArgument("no")) == "[INVALID_ARGUMENT] no"
    assert format_error(InvalidArgument("no", partial=True)) == (
        "[INVALID_ARGUMENT] no (partial answer was delivered)"
    )


@pytest.mark.parametrize("partial", [False, True])
def test_the_code_of_a_newer_server_is_kept_in_the_text(partial: bool):
    end = " (partial answer was delivered)" if partial else ""
    error = parse_error(f"in ensemble 'e', [QUOTA_EXCEEDED] tenant t has none left{end}")
    assert type(error) is NaiadError
    assert error.message == "[QUOTA_EXCEEDED] tenant t has none left"
    assert error.partial is partial
    assert not error.retryable


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unexpected shape for input 'input_ids' for model 'tensorrt_llm'. Expected [-1,-1], got [1]",
        "[StatusCode.UNAVAILABLE] failed to connect to all addresses",
        "Request for unknown model: 'x' is not found",
        "[]",
        "[queue_full] lower case is not ours",
        "[QUEUE_FULL]no space is not ours",
    ],
)
def test_words_that_are_not_ours_are_no_error_of_ours(text: str):
    assert parse_error(text) is None


def test_an_internal_error_shows_an_incident_and_nothing_else():
    first, second = InternalError(), InternalError()
    assert first.incident != second.incident
    assert first.incident in first.message
    returned = parse_error(format_error(first))
    assert isinstance(returned, InternalError)
    assert returned.incident == first.incident


def test_an_internal_error_without_an_incident_is_still_internal():
    returned = parse_error("[INTERNAL] something older servers said")
    assert isinstance(returned, InternalError)
    assert returned.incident == "unknown"
