"""The seam under `StepLoop`: something that advances a batch of sequences one step at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from naiad.contract.errors import NaiadError
from naiad.contract.generation import FinishReason, GenerationRequest
from naiad.engines.base import EngineLimits, EngineStats

__all__ = ["StepResult", "Stepper"]


@dataclass(slots=True)
class StepResult:
    """New tokens of one sequence after a step, or why it could not be taken in; `key` is as in `add`."""

    key: int
    ids: list[int]
    log_probs: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: NaiadError | None = None


class Stepper(ABC):
    """Not thread-safe: only the loop's thread calls it, but for `check` and `stats`."""

    @property
    @abstractmethod
    def limits(self) -> EngineLimits:
        """What the loaded model can take."""

    @property
    @abstractmethod
    def max_sequences(self) -> int:
        """Most sequences it holds at once."""

    @abstractmethod
    def check(self, request: GenerationRequest) -> None:
        """Raise Unsupported, naming the tensor, for what this engine cannot do."""

    @abstractmethod
    def add(self, key: int, request: GenerationRequest) -> None:
        """Take a sequence in; it is prefilled and decoded by the following steps."""

    @abstractmethod
    def step(self) -> list[StepResult]:
        """Advance every sequence; a finished one is reported once and then forgotten.

        Any exception means that the engine's state is lost: the loop calls `rebuild`.
        """

    @abstractmethod
    def abort(self, key: int) -> None:
        """Forget a sequence; nothing of it is reported any more. Unknown keys have no effect."""

    def wake(self) -> None:  # noqa: B027 - most steps do not wait
        """Let a `step` that waits for results end early, with none; the one method any thread may call."""

    def close(self) -> None:  # noqa: B027 - most are freed with the object
        """Free the model; nothing is called after it."""

    @abstractmethod
    def rebuild(self) -> None:
        """Make a fresh engine after a failed step; all sequences are gone."""

    @abstractmethod
    def stats(self) -> EngineStats:
        """Counts of the engine itself; the loop fills in the waiting queue."""
