"""Traces of real services: when requests came, how long they were, and which began alike.

Mooncake (kvcache-ai/Mooncake, FAST'25, Apache-2.0): JSON lines with `timestamp` in ms, `input_length`,
`output_length`, and `hash_ids`, one for each 512 tokens of the prompt; equal ids are equal blocks, and stand
at the same place. Azure LLM inference 2023 (Azure/AzurePublicDataset, CC-BY; Splitwise, ISCA'24): CSV with
`TIMESTAMP`, `ContextTokens`, `GeneratedTokens`. Both may be packed with gzip.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import IO

from naiad_perf.errors import ScenarioError

__all__ = ["MOONCAKE_BLOCK_TOKENS", "TraceFormat", "TraceRow", "read_trace"]

MOONCAKE_BLOCK_TOKENS = 512
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
_GZIP = b"\x1f\x8b"


class TraceFormat(Enum):
    """Formats of traces; `source` is what to quote beside a figure."""

    MOONCAKE = "mooncake"
    AZURE = "azure"

    @property
    def source(self) -> str:
        """Who published it, where, and under which licence."""
        return {
            TraceFormat.MOONCAKE: "kvcache-ai/Mooncake, FAST'25 release, Apache-2.0",
            TraceFormat.AZURE: "Azure/AzurePublicDataset, LLM inference 2023, CC-BY (Splitwise, ISCA'24)",
        }[self]


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace, unscaled.

    Attributes:
        arrival_ns: on the trace's own clock.
        input_tokens: length of the prompt.
        output_tokens: length of the answer.
        blocks: an id for each 512 tokens of the prompt, the last one partly filled; equal ids are equal
            content. None where the trace does not say what prompts share.
    """

    arrival_ns: int
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] | None = None


def read_trace(path: Path, kind: TraceFormat, offset: int = 0, limit: int | None = None) -> list[TraceRow]:
    """Read rows `offset` to `offset + limit` of a trace.

    Raises:
        ScenarioError: the file is not there, not of that format (the message names the line), ends before
            `offset`, or its times run backwards.
    """
    parse: Callable[[Iterable[str]], Iterator[TraceRow]]
    parse = _mooncake if kind is TraceFormat.MOONCAKE else _azure
    stop = None if limit is None else offset + limit
    number = 0
    rows: list[TraceRow] = []
    try:
        with _text(path) as lines:
            for number, row in enumerate(itertools.islice(parse(lines), stop), start=1):
                if number > offset:
                    rows.append(row)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ScenarioError(f"the trace {path} is not readable: {error}; it is {kind.source}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScenarioError(f"{path}, row {number + 1}: not a {kind.value} trace: {error}") from error
    if not rows:
        raise ScenarioError(f"{path} has {number} rows; none is left after offset {offset}")
    if any(later.arrival_ns < earlier.arrival_ns for earlier, later in itertools.pairwise(rows)):
        raise ScenarioError(f"{path}: its arrival times run backwards")
    return rows


def _text(path: Path) -> IO[str]:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    return gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8")


def _mooncake(lines: Iterable[str]) -> Iterator[TraceRow]:
    for line in lines:
        fields = json.loads(line)
        row = TraceRow(
            arrival_ns=_count(fields, "timestamp", 0) * _NS_PER_MS,
            input_tokens=_count(fields, "input_length", 1),
            output_tokens=_count(fields, "output_length", 1),
            blocks=tuple(int(block) for block in fields["hash_ids"]),
        )
        needed = -(-row.input_tokens // MOONCAKE_BLOCK_TOKENS)
        if len(row.blocks or ()) != needed:
            raise ValueError(f"{row.input_tokens} tokens are {needed} blocks, not {len(row.blocks or ())}")
        yield row


def _azure(lines: Iterable[str]) -> Iterator[TraceRow]:
    for fields in csv.DictReader(lines):
        yield TraceRow(
            arrival_ns=_timestamp_ns(fields["TIMESTAMP"]),
            input_tokens=_count(fields, "ContextTokens", 1),
            output_tokens=_count(fields, "GeneratedTokens", 1),
        )


def _count(fields: dict[str, str], name: str, least: int) -> int:
    value = int(fields[name])
    if value < least:
        raise ValueError(f"{name} is {value}, below {least}")
    return value


def _timestamp_ns(text: str) -> int:
    """Return nanoseconds; the fraction has seven digits, one more than datetime reads."""
    whole, _, fraction = text.partition(".")
    moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
    return int(moment.timestamp()) * _NS_PER_S + int(fraction[:9].ljust(9, "0"))
