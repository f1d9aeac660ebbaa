"""The files of aiperf: the requests it is given, a tokenizer, and the raw records of what came back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naiad_client.errors import ConnectFailed, NaiadError, TotalTimeout
from naiad_client.wire_errors import error_from_text
from naiad_perf.errors import LoadError
from naiad_perf.records import Outcome
from naiad_perf.workload.load import LoadTask, OpenLoop, Prompt

__all__ = [
    "RESPONSE_FIELD",
    "HttpAnswer",
    "raw_files",
    "read_raw",
    "template",
    "write_input",
    "write_tokenizer",
]

RESPONSE_FIELD = "model_name"
"""What aiperf takes for an answer's text. Every message has it; the text itself may be empty, and an answer
that is empty throughout would be a failure to aiperf. The tokens are those that the server counts."""

_LONGEST_ERROR = 200
_CLIENT_ERRORS = {"TimeoutError": TotalTimeout.code, "ClientConnectorError": ConnectFailed.code}


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One request of the raw records, in nanoseconds since the epoch; fields as in `RequestRecord`."""

    sent_ns: int
    response_ns: tuple[int, ...]
    response_tokens: tuple[int, ...]
    ended_ns: int | None
    outcome: Outcome
    error: str
    input_tokens: int | None


def template(*, takes_ids: bool) -> str:
    """Return the Jinja template from which aiperf makes the body; the rest of it comes with each request."""
    return "{}" if takes_ids else '{"text_input": {{ text|tojson }}}'


def write_input(path: Path, task: LoadTask) -> None:
    """Write the requests as aiperf's single-turn data set; the session's name is the prompt's index."""
    due = task.load.due_ns if isinstance(task.load, OpenLoop) else (None,) * len(task.prompts)
    with path.open("w", encoding="utf-8") as file:
        for index, (prompt, due_ns) in enumerate(zip(task.prompts, due, strict=True)):
            line: dict[str, Any] = {
                "session_id": str(index),
                "text": prompt.text or "-",
                "extra": _ids_body(prompt) if task.takes_ids else _text_body(prompt),
            }
            if due_ns is not None:
                line["timestamp"] = due_ns / 1e6
            file.write(json.dumps(line) + "\n")


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer that splits at blanks: aiperf wants one, and the server counts the tokens."""
    folder.mkdir()
    model = {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}
    whole: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None, "model": model,
    }  # fmt: skip
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def raw_files(export: Path) -> list[Path]:
    """Return the files of raw records: one, or when every request failed those of aiperf's processes."""
    whole = export / "profile_export_raw.jsonl"
    return [whole] if whole.is_file() else sorted((export / "raw_records").glob("*.jsonl"))


def read_raw(paths: Sequence[Path], count: int) -> list[HttpAnswer]:
    """Read raw records in the order of the prompts.

    Raises:
        LoadError: a file is of another form, or a request is missing.
    """
    found: dict[int, HttpAnswer] = {}
    try:
        for path in paths:
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                found[int(row["metadata"]["conversation_id"])] = _answer(row)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"{path} is not a raw export of aiperf as known here: {error!r}") from error
    missing = [index for index in range(count) if index not in found]
    if missing or len(found) != count:
        raise LoadError(f"aiperf was given {count} requests and reported {len(found)}; without {missing[:5]}")
    return [found[index] for index in range(count)]


def _text_body(prompt: Prompt) -> dict[str, Any]:
    return {
        "max_tokens": prompt.output_tokens,
        "min_tokens": prompt.output_tokens,
        "stream": True,
        "return_num_input_tokens": True,
        "return_num_output_tokens": True,
    }


def _ids_body(prompt: Prompt) -> dict[str, Any]:
    return {
        "input_ids": list(prompt.ids),
        "input_lengths": len(prompt.ids),
        "request_output_len": prompt.output_tokens,
        "end_id": -1,  # nothing but the length ends the answer
        "streaming": True,
        "return_num_input_tokens": True,
        "return_num_output_tokens": True,
    }


def _answer(row: dict[str, Any]) -> HttpAnswer:
    told = row["metadata"]
    sent_ns = int(told["request_start_ns"])
    to_epoch = sent_ns - int(row["start_perf_ns"])
    messages = [
        (int(response["perf_ns"]) + to_epoch, json.loads(packet["value"]))
        for response in row["responses"]
        for packet in response.get("packets", ())
        if packet["name"] == "data"
    ]
    counted = [(at, data["num_output_tokens"]) for at, data in messages if data.get("num_output_tokens")]
    inputs = [data["num_input_tokens"] for _, data in messages if data.get("num_input_tokens")]
    outcome, error = _outcome(row, [data for _, data in messages])
    ended_ns = int(told["request_end_ns"])
    return HttpAnswer(
        sent_ns=sent_ns,
        response_ns=tuple(at for at, _ in counted),
        response_tokens=tuple(int(tokens) for _, tokens in counted),
        ended_ns=ended_ns if ended_ns > sent_ns else None,  # of a refused request aiperf keeps no end
        outcome=outcome,
        error=error,
        input_tokens=int(inputs[0]) if inputs else None,
    )


def _outcome(row: dict[str, Any], messages: list[dict[str, Any]]) -> tuple[Outcome, str]:
    """Say how a request ended: an error inside a stream that began well is one as much as a refusal."""
    if row["metadata"]["was_cancelled"]:
        return Outcome.CANCELLED, ""
    told = row.get("error")
    if told is not None:
        code = _CLIENT_ERRORS.get(told.get("type"))
        return Outcome.ERROR, code or _code(str(told.get("message") or told.get("type")))
    for message in messages:
        if "error" in message:
            return Outcome.ERROR, _code(str(message["error"]))
    reasons = [message["finish_reason"] for message in messages if message.get("finish_reason")]
    if not messages:
        return Outcome.ERROR, "no data"
    if "cancelled" in reasons:  # the server cut it, for example while draining
        return Outcome.ERROR, "CANCELLED"
    return Outcome.OK, ""


def _code(text: str) -> str:
    """Return the code of an error the server states, or the start of any other text."""
    error = error_from_text(text)
    return error.code if error.code != NaiadError.code else " ".join(text.split())[:_LONGEST_ERROR]
