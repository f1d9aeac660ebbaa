"""A step-time model without weights: for tests, load ceilings and scheduling studies. Deterministic.

Times follow the usual first-order model of an in-flight-batching engine: prompts are prefilled at a fixed
rate, at most `max_num_tokens` a step, and a decode step costs a constant plus a part for each sequence.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from naiad.contract.errors import Unsupported
from naiad.contract.generation import FinishReason, GenerationRequest
from naiad.engines.base import EngineLimits, EngineStats
from naiad.engines.stepper import Stepper, StepResult

__all__ = ["SyntheticStepper", "SyntheticTiming"]

BLOCK_TOKENS = 32


@dataclass(frozen=True, slots=True)
class SyntheticTiming:
    """Speeds of the step-time model.

    Attributes:
        prefill_tokens_per_s: prompt tokens a second; 0 is instant.
        step_s: constant part of a decode step.
        step_per_sequence_s: part of a decode step for each sequence in it.
        max_num_tokens: most prompt tokens prefilled in one step.
    """

    prefill_tokens_per_s: float = 0.0
    step_s: float = 0.0
    step_per_sequence_s: float = 0.0
    max_num_tokens: int = 8192

    def duration_s(self, prefill_tokens: int, decoding: int) -> float:
        """Time of one step that prefills so many tokens and decodes so many sequences."""
        prefill_s = prefill_tokens / self.prefill_tokens_per_s if self.prefill_tokens_per_s else 0.0
        return prefill_s + (self.step_s + decoding * self.step_per_sequence_s if decoding else 0.0)


@dataclass(slots=True)
class _Sequence:
    request: GenerationRequest
    answer: tuple[int, ...]
    to_prefill: int
    produced: int = 0


class SyntheticStepper(Stepper):
    """Answers with a script, or echoes the prompt's own ids (without end ids) over and over.

    A script ends with finish reason `stop`; an echo runs to `max_tokens`. Log probabilities are -0.5 each.
    """

    def __init__(
        self,
        limits: EngineLimits,
        timing: SyntheticTiming,
        *,
        max_sequences: int,
        script: Sequence[int] = (),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limits = limits
        self._timing = timing
        self._max_sequences = max_sequences
        self._script = tuple(script)
        self._sleep = sleep
        self._sequences: OrderedDict[int, _Sequence] = OrderedDict()
        self._iterations = 0

    @property
    def limits(self) -> EngineLimits:
        """As given."""
        return self._limits

    @property
    def max_sequences(self) -> int:
        """As given."""
        return self._max_sequences

    def check(self, request: GenerationRequest) -> None:
        """Bad words cannot be avoided by an engine that does not choose."""
        if request.sampling.bad_sequences:
            raise Unsupported("bad_words_list is not supported by the synthetic engine")

    def add(self, key: int, request: GenerationRequest) -> None:
        """Take a sequence in."""
        echo = tuple(token for token in request.prompt_ids if token not in self._limits.end_ids)
        answer = self._script or echo or request.prompt_ids
        self._sequences[key] = _Sequence(request, answer, len(request.prompt_ids))

    def step(self) -> list[StepResult]:
        """Sleep for the step's duration, then report a token of every prefilled sequence."""
        budget = self._timing.max_num_tokens
        prefill = decoding = 0
        ready: list[tuple[int, _Sequence]] = []
        for key, sequence in self._sequences.items():
            if sequence.to_prefill:
                taken = min(sequence.to_prefill, budget)
                sequence.to_prefill -= taken
                budget -= taken
                prefill += taken
            else:
                decoding += 1
            if not sequence.to_prefill:
                ready.append((key, sequence))
        duration_s = self._timing.duration_s(prefill, decoding)
        if duration_s > 0:
            self._sleep(duration_s)
        self._iterations += 1
        return [self._advance(key, sequence) for key, sequence in ready]

    def _advance(self, key: int, sequence: _Sequence) -> StepResult:
        position = sequence.produced
        sequence.produced += 1
        token = sequence.answer[position % len(sequence.answer)]
        reason = None
        if sequence.produced >= sequence.request.sampling.max_tokens:
            reason = FinishReason.LENGTH
        elif self._script and sequence.produced == len(self._script):
            reason = FinishReason.STOP
        if reason is not None:
            del self._sequences[key]
        return StepResult(key, [token], [-0.5], reason)

    def abort(self, key: int) -> None:
        """Forget a sequence."""
        self._sequences.pop(key, None)

    def rebuild(self) -> None:
        """Start empty."""
        self._sequences.clear()

    def stats(self) -> EngineStats:
        """KV blocks are those the sequences' tokens would fill."""
        used = context = context_tokens = 0
        for sequence in self._sequences.values():
            used += -(-(len(sequence.request.prompt_ids) + sequence.produced) // BLOCK_TOKENS)
            context += sequence.to_prefill > 0
            context_tokens += sequence.to_prefill
        return EngineStats(
            max_active=self._max_sequences,
            context=context,
            generation=len(self._sequences) - context,
            context_tokens=context_tokens,
            kv_blocks_max=self._limits.kv_capacity_tokens // BLOCK_TOKENS,
            kv_blocks_used=used,
            kv_tokens_per_block=BLOCK_TOKENS,
            iterations=self._iterations,
        )
