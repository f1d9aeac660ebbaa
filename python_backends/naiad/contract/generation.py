"""A generation request and its answer as the stages hand them on: token ids, never tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["FinishReason", "GenerationRequest", "RequestTimes", "SamplingParams", "TokenChunk"]


class FinishReason(Enum):
    """Why a sequence ended (the executor's closed set); the value is the `finish_reason` output."""

    STOP = "stop"  # an end id or a stop word
    LENGTH = "length"  # max_tokens
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen; validated where tensors are decoded (`naiad.serving.sampling`).

    Attributes:
        max_tokens: most new tokens, at least 1.
        min_tokens: end ids are not sampled before this many new tokens.
        temperature: at least 0; 0 is greedy.
        top_k: 0 is off.
        top_p: in (0, 1], or None when not given.
        repetition_penalty: above 0; 1 is off.
        presence_penalty: in [-2, 2]; 0 is off.
        frequency_penalty: in [-2, 2]; 0 is off.
        seed: of the sampler.
        end_ids: token ids that end the sequence; they are not part of the answer.
        stop_sequences: token sequences that end the answer; they are part of it, as in TensorRT-LLM.
        bad_sequences: token sequences that must not appear.
        log_probs: whether chunks carry the log probability of each token.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    end_ids: frozenset[int] = frozenset()
    stop_sequences: tuple[tuple[int, ...], ...] = ()
    bad_sequences: tuple[tuple[int, ...], ...] = ()
    log_probs: bool = False

    @property
    def greedy(self) -> bool:
        """TensorRT-LLM's rule: top_k 0 or 1 without top_p takes the likeliest token at any temperature."""
        return self.temperature == 0 or self.top_k == 1 or (self.top_k == 0 and self.top_p is None)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate.

    Attributes:
        request_id: the caller's id (may be empty, may be shared by the rows of one batch).
        prompt_ids: token ids of the prompt, at least one.
        sampling: how to choose tokens.
        deadline_s: on the monotonic clock of the engine's process; None is no deadline.
        streaming: whether the caller gets its tokens as they come.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    deadline_s: float | None = None
    streaming: bool = True


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """When a request passed its stations, in seconds of the engine process's monotonic clock.

    Attributes:
        arrival_s: accepted by the engine.
        first_scheduled_s: left the waiting queue.
        first_token_s: first token delivered; None when there was none.
        last_token_s: last token delivered; None when there was none.
    """

    arrival_s: float
    first_scheduled_s: float
    first_token_s: float | None
    last_token_s: float | None


@dataclass(slots=True)
class TokenChunk:
    """New tokens of one sequence.

    Attributes:
        ids: new token ids, in order; may be empty in the last chunk.
        log_probs: natural-log probability of each id, when asked for.
        finish_reason: set on the last chunk only.
        times: set on the last chunk only.
        sequence: which of the sequences that a request may ask for, from 0.
    """

    ids: list[int]
    log_probs: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    times: RequestTimes | None = None
    sequence: int = 0
