"""The load a driver is asked to make: which prompts, in which order, and when each is due."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ClosedLoop", "Load", "LoadTask", "OpenLoop", "Prompt"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to send.

    Attributes:
        text: for models that take text.
        ids: token ids for models that take ids; as many as the text has words.
        output_tokens: exact length of the answer asked for.
    """

    text: str
    ids: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many streams at once; each sends its next request when its last one has ended."""

    concurrency: int


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests due at set times, however the server does.

    Attributes:
        due_ns: for each prompt, nanoseconds after the start; never falling.
    """

    due_ns: tuple[int, ...]


Load = ClosedLoop | OpenLoop


@dataclass(frozen=True, slots=True)
class LoadTask:
    """One run for a driver.

    Attributes:
        grpc_url: ``host:port``.
        http_url: ``host:port``.
        model: Triton model to ask.
        takes_ids: whether that model takes token ids (`tensorrt_llm`) instead of text.
        prompts: in order of sending, warm-up first.
        warm_up: how many of them, at the start, only warm up.
        load: closed or open.
        timeout_s: a request that takes longer is an error.
        cancel_after_s: of each request, seconds after sending at which its client hangs up; None: never.
        folder: an existing, empty folder for the driver's own files; it stays.
    """

    grpc_url: str
    http_url: str
    model: str
    takes_ids: bool
    prompts: tuple[Prompt, ...]
    warm_up: int
    load: Load
    timeout_s: float
    folder: Path
    cancel_after_s: float | None = None
