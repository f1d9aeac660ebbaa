"""The two files of perf_analyzer: the requests it is given, and the export of what came back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naiad_perf.errors import LoadError
from naiad_perf.workload.load import OpenLoop, Prompt

__all__ = ["LEAD_IN_US", "Answer", "read_export", "write_input", "write_intervals"]

LEAD_IN_US = 100_000
"""The first request of a schedule is due this long after the start: by then every stream is open, and a
record cannot be lost to perf_analyzer's clearing of its records while it starts."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request of the export, in nanoseconds since the epoch.

    Attributes:
        asked: what tells the request: its text or ids, and the tokens asked for.
        sent_ns: when it was sent.
        response_ns: arrival of each response with tokens.
        response_tokens: tokens in each of them.
        ended_ns: arrival of the last message, with tokens or without.
        input_tokens: length of the prompt as the server counted; None if it did not.
        finish_reason: of the last response that gave one.
    """

    asked: tuple[object, int]
    sent_ns: int
    response_ns: tuple[int, ...]
    response_tokens: tuple[int, ...]
    ended_ns: int
    input_tokens: int | None
    finish_reason: str


def write_input(path: Path, prompts: Iterable[Prompt], *, takes_ids: bool) -> None:
    """Write the requests as perf_analyzer's ``--input-data``; each answer will have its exact length."""
    make = _ids_request if takes_ids else _text_request
    path.write_text(json.dumps({"data": [make(prompt) for prompt in prompts]}), encoding="utf-8")


def write_intervals(path: Path, load: OpenLoop) -> None:
    """Write a schedule as perf_analyzer's ``--request-intervals``: microseconds from one to the next."""
    times = [LEAD_IN_US + round(due / 1000) for due in load.due_ns]
    steps = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    path.write_text("".join(f"{step}\n" for step in steps), encoding="ascii")


def asked(prompt: Prompt, *, takes_ids: bool) -> tuple[object, int]:
    """Return what `Answer.asked` will be for this prompt."""
    return (prompt.ids if takes_ids else prompt.text), prompt.output_tokens


def read_export(path: Path, *, takes_ids: bool) -> list[Answer]:
    """Read a ``--profile-export-file``, in its order: by thread, then by end.

    Raises:
        LoadError: the file is missing, or not of the form known.
    """
    try:
        document = json.loads(_text(path))
        (experiment,) = document["experiments"]
        return [_answer(request, takes_ids) for request in experiment["requests"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"{path} is not an export of perf_analyzer as known here: {error!r}") from error


def _text(path: Path) -> str:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            return file.read()
    return path.read_text(encoding="utf-8", errors="replace")


def _text_request(prompt: Prompt) -> dict[str, Any]:
    return {
        "text_input": [prompt.text],
        "max_tokens": [prompt.output_tokens],
        "min_tokens": [prompt.output_tokens],
        "stream": [True],
        "return_num_input_tokens": [True],
        "return_num_output_tokens": [True],
    }


def _ids_request(prompt: Prompt) -> dict[str, Any]:
    return {
        "input_ids": {"content": list(prompt.ids), "shape": [len(prompt.ids)]},
        "input_lengths": [len(prompt.ids)],
        "request_output_len": [prompt.output_tokens],
        "end_id": [-1],  # nothing but the length ends the answer
        "streaming": [True],
        "return_num_output_tokens": [True],
    }


def _answer(request: dict[str, Any], takes_ids: bool) -> Answer:
    inputs = request["request_inputs"]
    times: list[int] = request["response_timestamps"]
    outputs: list[dict[str, Any]] = request["response_outputs"]
    counted = [
        (at, int(output["num_output_tokens"]))
        for at, output in zip(times, outputs, strict=True)
        if output.get("num_output_tokens") not in ("", 0)
    ]
    reasons = [output["finish_reason"] for output in outputs if output.get("finish_reason")]
    return Answer(
        asked=_asked(inputs, takes_ids),
        sent_ns=request["timestamp"],
        response_ns=tuple(at for at, _ in counted),
        response_tokens=tuple(tokens for _, tokens in counted),
        ended_ns=times[-1],
        input_tokens=_input_tokens(inputs, outputs),
        finish_reason=reasons[-1] if reasons else "",
    )


def _asked(inputs: dict[str, Any], takes_ids: bool) -> tuple[object, int]:
    if not takes_ids:
        return inputs["text_input"], int(inputs["max_tokens"])
    return tuple(_listed(inputs["input_ids"])), int(inputs["request_output_len"])


def _input_tokens(inputs: dict[str, Any], outputs: Sequence[dict[str, Any]]) -> int | None:
    if "input_ids" in inputs:
        return len(_listed(inputs["input_ids"]))
    told = [output["num_input_tokens"] for output in outputs if output.get("num_input_tokens")]
    return int(told[0]) if told else None


def _listed(value: Any) -> list[Any]:
    """Return a tensor's values: the export writes a tensor of one value as that value."""
    return value if isinstance(value, list) else [value]
