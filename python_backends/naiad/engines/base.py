"""The engine interface: what every engine promises to the model that serves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from naiad.contract.errors import InvalidArgument, NaiadError, PromptTooLong
from naiad.contract.generation import GenerationRequest, TokenChunk

__all__ = ["Engine", "EngineLimits", "EngineStats", "Sink"]


class Sink(Protocol):
    """Where the tokens of one request go. Called from the engine's thread, in order, never after the end."""

    def emit(self, chunk: TokenChunk) -> None:
        """Take a chunk; the one with a finish reason is the last call of this sink."""

    def fail(self, error: NaiadError) -> None:
        """Take the error that ended the request; the last call of this sink."""

    def is_cancelled(self) -> bool:
        """Whether the caller has gone away; polled every cancellation period."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the loaded model can take.

    Attributes:
        vocab_size: token ids are in [0, vocab_size).
        max_seq_len: most tokens of prompt plus output.
        kv_capacity_tokens: tokens the whole KV cache holds; no single request may need more.
        end_ids: the model's own end-of-sequence ids.
    """

    vocab_size: int
    max_seq_len: int
    kv_capacity_tokens: int
    end_ids: frozenset[int]

    def check(self, request: GenerationRequest) -> None:
        """Refuse what can never be served, before it costs engine time.

        Raises:
            InvalidArgument: the prompt is empty or a token id is outside the vocabulary.
            PromptTooLong: prompt plus output exceeds the context or the whole KV cache.
        """
        prompt = request.prompt_ids
        if not prompt:
            raise InvalidArgument("input_ids is empty: the prompt needs at least one token")
        if min(prompt) < 0 or max(prompt) >= self.vocab_size:
            raise InvalidArgument(f"input_ids holds a token id outside the vocabulary [0, {self.vocab_size})")
        for name, sequences in (
            ("stop_words_list", request.sampling.stop_sequences),
            ("bad_words_list", request.sampling.bad_sequences),
        ):
            if any(not 0 <= token < self.vocab_size for sequence in sequences for token in sequence):
                raise InvalidArgument(
                    f"{name} holds a token id outside the vocabulary [0, {self.vocab_size})"
                )
        wanted = request.sampling.max_tokens
        for limit, what in ((self.max_seq_len, "context"), (self.kv_capacity_tokens, "KV cache")):
            if len(prompt) + wanted > limit:
                room = limit - len(prompt)
                fewer = f" or ask for at most {room} output tokens" if room > 0 else ""
                raise PromptTooLong(
                    f"prompt of {len(prompt)} tokens plus {wanted} output tokens exceeds the {what} of "
                    f"{limit} tokens; shorten the prompt{fewer}"
                )


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot for the `nv_trt_llm_*` metric families; counts unless the name says otherwise."""

    active: int = 0
    max_active: int = 0
    scheduled: int = 0
    context: int = 0
    waiting: int = 0
    generation: int = 0
    paused: int = 0
    context_tokens: int = 0
    kv_blocks_max: int = 0
    kv_blocks_used: int = 0
    kv_blocks_reused: int = 0
    kv_tokens_per_block: int = 0
    memory_bytes: int = 0
    iterations: int = 0


class Engine(ABC):
    """A loaded model that generates for many requests at once.

    All methods may be called from any thread. `submit` returns at once; chunks reach the sink from the
    engine's own thread. Each accepted request ends in exactly one chunk with a finish reason or one `fail`.
    """

    @property
    @abstractmethod
    def limits(self) -> EngineLimits:
        """What the loaded model can take."""

    @abstractmethod
    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Accept a request.

        Raises:
            InvalidArgument: it can never be served (see `EngineLimits.check`).
            Unsupported: it asks for something this engine cannot do; the tensor is named.
            Overloaded: the waiting queue is full.
            EngineUnavailable: the engine has failed or is closed.
        """

    @abstractmethod
    def stop(self, request_id: str) -> None:
        """Cancel every live request of that id before its next step; an unknown id has no effect."""

    @abstractmethod
    def stats(self) -> EngineStats:
        """Return the current counts."""

    @abstractmethod
    def close(self) -> None:
        """Cancel what is live, end the engine's thread and free the model."""
