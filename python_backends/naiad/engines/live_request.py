"""A request that an engine has accepted: what it has produced, what of it is still held, where it ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from naiad.contract.generation import FinishReason, GenerationRequest, RequestTimes, TokenChunk
from naiad.engines.base import Sink
from naiad.engines.stepper import StepResult

__all__ = ["LiveRequest"]


@dataclass(slots=True)
class LiveRequest:
    """Where one request stands; only the engine's thread changes it, but for `stopped`.

    Attributes:
        request: as submitted.
        sink: takes its chunks.
        submitted_s: on the loop's clock, as every time here.
        ids: tokens produced, held ones included.
        scheduled_s: when it joined the batch.
        first_token_s: when its first token was produced.
        delivered_s: when its latest token was produced.
        held: tokens that the sink has not been given yet.
        begun: whether the sink was given any.
        stopped: a stop request came, or the caller is gone.
    """

    request: GenerationRequest
    sink: Sink
    submitted_s: float
    ids: list[int] = field(default_factory=list)
    scheduled_s: float | None = None
    first_token_s: float | None = None
    delivered_s: float | None = None
    held: TokenChunk | None = None
    begun: bool = False
    stopped: bool = False

    def times(self) -> RequestTimes:
        """Stations passed so far; a request that was never scheduled counts as scheduled on arrival."""
        scheduled_s = self.submitted_s if self.scheduled_s is None else self.scheduled_s
        return RequestTimes(self.submitted_s, scheduled_s, self.first_token_s, self.delivered_s)

    def cut(self, result: StepResult) -> tuple[list[int], FinishReason | None]:
        """Apply end ids, stop sequences and the length; return what positions to deliver and why it ends."""
        sampling = self.request.sampling
        taken: list[int] = []
        for position, token in enumerate(result.ids):
            if token in sampling.end_ids:
                if len(self.ids) >= sampling.min_tokens:
                    return taken, FinishReason.STOP
                continue  # too early to end, and never part of the answer
            taken.append(position)
            self.ids.append(token)
            if len(self.ids) >= sampling.min_tokens and self._ends_with_any(sampling.stop_sequences):
                return taken, FinishReason.STOP
            if len(self.ids) >= sampling.max_tokens:
                return taken, FinishReason.LENGTH
        return taken, result.finish_reason

    def hold(self, chunk: TokenChunk) -> None:
        """Put a chunk behind what is held already."""
        if self.held is None:
            self.held = chunk
            return
        ids, log_probs = self.held.ids + chunk.ids, self.held.log_probs + chunk.log_probs
        self.held = TokenChunk(ids, log_probs, chunk.finish_reason, chunk.times)

    def _ends_with_any(self, sequences: tuple[tuple[int, ...], ...]) -> bool:
        return any(tuple(self.ids[-len(sequence) :]) == sequence for sequence in sequences)
