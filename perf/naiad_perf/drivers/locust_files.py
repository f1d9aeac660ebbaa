"""What the driver "locust" and its process tell each other: a task in, answers out, as JSON in one folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from naiad_perf.drivers.timed_streams import TimedAnswer
from naiad_perf.errors import LoadError
from naiad_perf.records import Outcome, RequestRecord
from naiad_perf.workload.load import ClosedLoop, LoadTask, OpenLoop, Prompt

__all__ = ["read_records", "read_task", "write_answers", "write_task"]

_TASK = "task.json"
_ANSWERS = "answers.json"


def write_task(task: LoadTask) -> None:
    """Write a task into its folder."""
    kind = "closed" if isinstance(task.load, ClosedLoop) else "open"
    told = {**asdict(task), "load": {kind: asdict(task.load)}, "folder": str(task.folder)}
    (task.folder / _TASK).write_text(json.dumps(told), encoding="utf-8")


def read_task(folder: Path) -> LoadTask:
    """Read what `write_task` wrote."""
    told = json.loads((folder / _TASK).read_text(encoding="utf-8"))
    (kind, load) = next(iter(told["load"].items()))
    prompts = [Prompt(one["text"], tuple(one["ids"]), one["output_tokens"]) for one in told["prompts"]]
    told["load"] = ClosedLoop(**load) if kind == "closed" else OpenLoop(tuple(load["due_ns"]))
    told["prompts"] = tuple(prompts)
    told["folder"] = Path(told["folder"])
    return LoadTask(**told)


def write_answers(folder: Path, answers: Sequence[tuple[int, TimedAnswer]]) -> None:
    """Write when each request was intended, and its answer, in the order of the prompts."""
    rows = [
        {"intended_ns": intended_ns, **asdict(answer), "outcome": answer.outcome.value}
        for intended_ns, answer in answers
    ]
    (folder / _ANSWERS).write_text(json.dumps(rows), encoding="utf-8")


def read_records(task: LoadTask) -> tuple[RequestRecord, ...]:
    """Read the answers to a task.

    Raises:
        LoadError: they are missing or incomplete.
    """
    try:
        rows = json.loads((task.folder / _ANSWERS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"locust left no answers in {task.folder}: {error}") from error
    if len(rows) != len(task.prompts):
        raise LoadError(f"locust was given {len(task.prompts)} requests and reported {len(rows)}")
    return tuple(_record(index, row, task.warm_up) for index, row in enumerate(rows))


def _record(index: int, row: dict[str, Any], warm_up: int) -> RequestRecord:
    for name in ("response_ns", "response_tokens"):
        row[name] = tuple(row[name])
    return RequestRecord(index=index, warm_up=index < warm_up, **{**row, "outcome": Outcome(row["outcome"])})
