"""Texts and statuses of the wire become the right error."""

from __future__ import annotations

import pytest

from naiad.contract.errors import format_error
from naiad_client import errors as e
from naiad_client.wire_errors import error_from_status, error_from_text

KINDS: list[type[e.NaiadError]] = [getattr(e, name) for name in e.__all__]


@pytest.mark.parametrize(
    "kind", [e.InvalidArgument, e.PromptTooLong, e.Overloaded, e.Draining, e.EngineStalled]
)
@pytest.mark.parametrize("wrapping", ["{}", "in ensemble 'ensemble', {}", "[request id: a1] {}"])
def test_the_servers_own_errors_come_back_as_themselves(kind: type[e.NaiadError], wrapping: str) -> None:
    error = error_from_text(wrapping.format(format_error(kind("the reason"))))
    assert type(error) is kind
    assert error.message == "the reason"


def test_a_partial_answer_and_an_incident_survive() -> None:
    cut = error_from_text(format_error(e.EngineUnavailable("gone", partial=True)))
    assert (type(cut), cut.partial) == (e.EngineUnavailable, True)
    broken = error_from_text(format_error(e.InternalError("0123abcd")))
    assert isinstance(broken, e.InternalError)
    assert broken.incident == "0123abcd"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Stub process 'tensorrt_llm_0_0' is not healthy.", e.EngineUnavailable),
        ("Failed to process: Stub process '/models/x/1/model.py' is not healthy.", e.EngineUnavailable),
        ("Request for unknown model: 'nope' is not found", e.ModelNotFound),
        ("Request for unknown model: 'm' version 7 is not found", e.ModelNotFound),
        ("Request for unknown model: 'm' has no available versions", e.EngineUnavailable),
        ("Request for unknown model: 'm' version 1 is not at ready state", e.EngineUnavailable),
        ("[request id: 1] Exceeds maximum queue size", e.Overloaded),
        ("Request timeout expired", e.DeadlineExceeded),
        ("Server is stopping, scheduler for model has stopped accepting new inference requests", e.Draining),
        ("Request was cancelled", e.Cancelled),
        ("[request id: 1] unexpected inference input 'foo' for model 'm'", e.InvalidArgument),
        ("[request id: 1] expected 3 inputs but got 2 inputs for model 'm'", e.InvalidArgument),
        ("inference input 'x' data-type is 'INT64', but model 'm' expects 'INT32'", e.InvalidArgument),
        ("unexpected shape for input 'x' for model 'm'", e.InvalidArgument),
        ("something never seen", e.NaiadError),
    ],
)
def test_sentences_of_triton_have_a_meaning(text: str, kind: type[e.NaiadError]) -> None:
    assert type(error_from_text(text)) is kind


def test_an_unknown_text_is_kept_but_not_the_servers_paths() -> None:
    error = error_from_text("boom\n\nAt:\n  /opt/models/m/1/model.py(12): execute\n")
    assert error.message == "boom"
    assert "/models" not in error_from_text("Stub process '/models/m' is not healthy.").message


def test_a_code_inside_a_python_traceback_is_still_found() -> None:
    text = "Failed to process the request(s), message: [QUEUE_FULL] full\n\nAt:\n  /opt/x.py(1): f\n"
    error = error_from_text(text)
    assert (type(error), error.message) == (e.Overloaded, "full")


@pytest.mark.parametrize(
    ("status", "details", "kind"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: UNKNOWN: x", e.ConnectFailed),
        ("UNAVAILABLE", "errors resolving nosuch:1: [...]", e.ConnectFailed),
        ("UNIMPLEMENTED", "Received http2 header with status: 404", e.ConnectFailed),
        ("UNAVAILABLE", "Socket closed", e.EngineUnavailable),
        ("UNAVAILABLE", "Request for unknown model: 'm' is not found", e.ModelNotFound),
        ("NOT_FOUND", "", e.ModelNotFound),
        ("UNIMPLEMENTED", "no such method", e.Unsupported),
        ("INVALID_ARGUMENT", "bad", e.InvalidArgument),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", e.TotalTimeout),
        ("CANCELLED", "Locally cancelled by application!", e.Cancelled),
        ("RESOURCE_EXHAUSTED", "too many", e.Overloaded),
        ("RESOURCE_EXHAUSTED", "Received message larger than max (9 vs. 4)", e.InvalidArgument),
        ("INTERNAL", "oops", e.NaiadError),
        ("PERMISSION_DENIED", "no", e.NaiadError),
        ("UNKNOWN", "[DRAINING] going down", e.Draining),
    ],
)
def test_statuses_become_typed(status: str, details: str, kind: type[e.NaiadError]) -> None:
    error = error_from_status(status, details, address="h:1")
    assert type(error) is kind
    assert error.message


def test_a_failed_connection_names_the_address() -> None:
    error = error_from_status("UNAVAILABLE", "failed to connect; last error: refused", address="h:8001")
    assert "h:8001" in error.message
    assert "refused" in error.message


def test_the_tree_keeps_its_promises_about_retrying() -> None:
    kinds = {kind.__name__: kind.retryable for kind in KINDS}
    retryable = {name for name, yes in kinds.items() if yes}
    assert retryable == {
        "ConnectFailed", "Draining", "EngineStalled", "EngineUnavailable", "FirstTokenTimeout", "IdleTimeout",
        "IncompleteStream", "Overloaded",
    }  # fmt: skip
    for line in (e.__doc__ or "").splitlines():
        name = next((kind for kind in kinds if f"── {kind} " in line), None)
        if name is not None:
            word = line.replace("*", " ").split(f" {name} ")[1].split()[0]
            assert word == ("yes" if kinds[name] else "no"), line


def test_codes_are_stable_and_distinct() -> None:
    codes = [kind.code for kind in KINDS if kind is not e.NaiadError]  # whose code is InternalError's
    assert len(set(codes)) == len(codes)
