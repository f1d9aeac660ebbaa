"""Put the responses of one request together: deltas, token counts, log probabilities, times."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import service_pb2

from naiad_client.errors import NaiadError

__all__ = ["Assembly", "Chunk", "Completion", "Timings", "Usage"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of the answer.

    Attributes:
        text: what this piece adds; may be empty.
        index: 0, 1, 2, ... within the answer.
        num_output_tokens: tokens in this piece; 0 when the server does not count.
        finish_reason: only on the last piece: ``stop``, ``length``, ``cancelled``, ...; None when not told.
        log_probs: natural logarithm of each token's probability; None unless asked for.
    """

    text: str
    index: int
    num_output_tokens: int = 0
    finish_reason: str | None = None
    log_probs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them; None when it does not count."""

    num_input_tokens: int | None
    num_output_tokens: int | None


@dataclass(frozen=True, slots=True)
class Timings:
    """Times as the client saw them, in seconds from the start of the call (attempts that failed included).

    Attributes:
        ttft_s: to the first token; None when none came.
        mean_itl_s: mean time between tokens after the first piece: (last piece - first piece) / (tokens
            after the first piece); None when all tokens came at once or are not counted.
        total_s: to the end of the answer.
        tokens_per_s: output tokens / `total_s`; None when not counted.
    """

    ttft_s: float | None
    mean_itl_s: float | None
    total_s: float
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer, or what there was of it when the caller cancelled (finish reason ``cancelled``)."""

    text: str
    finish_reason: str | None
    usage: Usage
    timings: Timings
    log_probs: tuple[float, ...] | None = None
    cum_log_prob: float | None = None


class Assembly:
    """Collects the data responses of one attempt, in order of arrival."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._log_probs: list[float] = []
        self._cum_log_prob: float | None = None
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None
        self._tokens_in_first = 0
        self._first_at_s: float | None = None
        self._last_at_s = 0.0
        self._pieces = 0
        self._finish_reason: str | None = None

    @property
    def started(self) -> bool:
        """Whether any part of the answer arrived."""
        return self._pieces > 0

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._texts)

    def add(self, response: service_pb2.ModelInferResponse, at_s: float) -> Chunk | None:
        """Take one response that arrived at `at_s`; None when it carries no data (the empty final one).

        Raises:
            NaiadError: a tensor is not what the contract says.
        """
        if not response.outputs:
            return None
        tensors = _tensors(response)
        tokens = _whole(tensors, "num_output_tokens")
        log_probs = _reals(tensors, "output_log_probs")
        chunk = Chunk(
            text=_text(tensors, "text_output") or "",
            index=self._pieces,
            num_output_tokens=tokens or 0,
            finish_reason=_text(tensors, "finish_reason") or None,
            log_probs=log_probs,
        )
        if tokens is not None:
            self._output_tokens = (self._output_tokens or 0) + tokens
        if self._input_tokens is None:
            self._input_tokens = _whole(tensors, "num_input_tokens")
        cumulative = _reals(tensors, "cum_log_probs")
        if cumulative:
            self._cum_log_prob = cumulative[0]
        self._keep(chunk, at_s)
        return chunk

    def completion(self, *, started_s: float, ended_s: float, finish_reason: str | None = None) -> Completion:
        """Return the whole; `finish_reason` is used when the server gave none."""
        total_s = ended_s - started_s
        tokens = self._output_tokens
        return Completion(
            text=self.text,
            finish_reason=self._finish_reason or finish_reason,
            usage=Usage(self._input_tokens, tokens),
            timings=Timings(
                ttft_s=None if self._first_at_s is None else self._first_at_s - started_s,
                mean_itl_s=self._mean_itl_s(),
                total_s=total_s,
                tokens_per_s=tokens / total_s if tokens is not None and total_s > 0 else None,
            ),
            log_probs=tuple(self._log_probs) if self._log_probs else None,
            cum_log_prob=self._cum_log_prob,
        )

    def _keep(self, chunk: Chunk, at_s: float) -> None:
        self._pieces += 1
        self._texts.append(chunk.text)
        self._log_probs.extend(chunk.log_probs or ())
        if chunk.finish_reason is not None:
            self._finish_reason = chunk.finish_reason
        if not chunk.text and not chunk.num_output_tokens:
            return  # only closing words: no token, so no time of one
        if self._first_at_s is None:
            self._first_at_s = at_s
            self._tokens_in_first = chunk.num_output_tokens
        self._last_at_s = at_s

    def _mean_itl_s(self) -> float | None:
        later = (self._output_tokens or 0) - self._tokens_in_first
        if self._first_at_s is None or later < 1:
            return None
        return (self._last_at_s - self._first_at_s) / later


_Raw = dict[str, tuple[str, bytes]]


def _tensors(response: service_pb2.ModelInferResponse) -> _Raw:
    if len(response.outputs) != len(response.raw_output_contents):
        raise NaiadError("malformed response: outputs and their contents differ in number")
    return {
        output.name: (output.datatype, raw)
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }


def _text(tensors: _Raw, name: str) -> str | None:
    found = tensors.get(name)
    if found is None or not found[1]:
        return None
    datatype, raw = found
    _expect(name, datatype == "BYTES" and len(raw) >= 4)
    (length,) = struct.unpack_from("<I", raw)
    _expect(name, len(raw) >= 4 + length)
    # Upstream's models can cut inside a character; a replacement sign is better than losing the answer.
    return raw[4 : 4 + length].decode(errors="replace")


def _whole(tensors: _Raw, name: str) -> int | None:
    found = tensors.get(name)
    if found is None or not found[1]:
        return None
    datatype, raw = found
    _expect(name, datatype in ("INT32", "UINT32") and len(raw) % 4 == 0)
    return int(np.frombuffer(raw, dtype="<i4" if datatype == "INT32" else "<u4")[0])


def _reals(tensors: _Raw, name: str) -> tuple[float, ...] | None:
    found = tensors.get(name)
    if found is None:
        return None
    datatype, raw = found
    _expect(name, datatype == "FP32" and len(raw) % 4 == 0)
    return tuple(float(value) for value in np.frombuffer(raw, dtype="<f4"))


def _expect(name: str, right: bool) -> None:
    if not right:
        raise NaiadError(f"malformed response: tensor {name} has an unexpected type or size")
