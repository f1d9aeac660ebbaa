"""The CPU engine: OpenVINO GenAI's continuous batching (in-flight batching, paged KV cache, prefix reuse).

What the library does with bad input (measured with 2026.4.1) is why `EngineLimits.check` and the validation
of sampling values come before it: ids outside the vocabulary, prompts over the context and batch
dimensions are taken without an error, and a failed `step()` leaves the pipeline unusable.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from naiad.contract.errors import Unsupported
from naiad.contract.generation import FinishReason, GenerationRequest, SamplingParams
from naiad.engines.base import EngineLimits, EngineStats
from naiad.engines.forbidden_text import forbid
from naiad.engines.openvino_settings import OpenVinoSettings
from naiad.engines.stepper import Stepper, StepResult

__all__ = ["OpenVinoStepper"]

BLOCK_TOKENS = 32  # block size of OpenVINO's paged attention on CPUs

_FINISH = {
    genai.GenerationFinishReason.STOP: FinishReason.STOP,
    genai.GenerationFinishReason.LENGTH: FinishReason.LENGTH,
}


class OpenVinoStepper(Stepper):
    """One pipeline; a sequence's handle must be kept, for dropping it drops the request silently."""

    def __init__(self, settings: OpenVinoSettings, limits: EngineLimits) -> None:
        self._settings = settings
        self._blocks = settings.kv_tokens // BLOCK_TOKENS
        # A request over the whole blocks would be dropped by the pipeline half-way.
        capacity = min(limits.kv_capacity_tokens, self._blocks * BLOCK_TOKENS)
        self._limits = replace(limits, kv_capacity_tokens=capacity)
        self._handles: dict[int, Any] = {}
        self._iterations = 0
        self._pipeline = self._build()

    def _build(self) -> Any:
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = self._blocks
        scheduler.max_num_seqs = self._settings.max_sequences
        scheduler.max_num_batched_tokens = self._settings.max_num_tokens
        scheduler.enable_prefix_caching = self._settings.prefix_caching
        scheduler.dynamic_split_fuse = self._settings.chunked_prefill
        properties: dict[str, Any] = {
            # Processors with AMX compute in bf16 unless told, which refuses an f32 cache.
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": self._settings.kv_precision,
        }
        if not self._settings.dynamic_quantization:
            properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
        return genai.ContinuousBatchingPipeline(self._settings.directory, scheduler, "CPU", properties)

    @property
    def limits(self) -> EngineLimits:
        """As given, but that only whole blocks of the KV cache count."""
        return self._limits

    @property
    def max_sequences(self) -> int:
        """As set."""
        return self._settings.max_sequences

    def check(self, request: GenerationRequest) -> None:
        """See `OpenVinoSettings.check`."""
        self._settings.check(request)

    def add(self, key: int, request: GenerationRequest) -> None:
        """Queue the sequence in the pipeline; prefixes are matched here."""
        prompt = openvino.Tensor(np.array([request.prompt_ids], dtype=np.int64))
        self._handles[key] = self._pipeline.add_request(key, prompt, self._config(request.sampling))

    def _config(self, sampling: SamplingParams) -> Any:
        config = genai.GenerationConfig()
        config.max_new_tokens = sampling.max_tokens
        config.min_new_tokens = sampling.min_tokens
        config.ignore_eos = not sampling.end_ids
        if sampling.end_ids:
            config.stop_token_ids = set(sampling.end_ids)
            config.eos_token_id = min(sampling.end_ids)
        config.repetition_penalty = sampling.repetition_penalty
        config.presence_penalty = sampling.presence_penalty
        config.frequency_penalty = sampling.frequency_penalty
        config.logprobs = int(sampling.log_probs)
        config.do_sample = not sampling.greedy
        if config.do_sample:
            config.temperature = sampling.temperature
            config.top_p = 1.0 if sampling.top_p is None else sampling.top_p
            if sampling.top_k:
                config.top_k = sampling.top_k
            config.rng_seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
        if sampling.bad_sequences:
            config.structured_output_config = self._without(sampling.bad_sequences)
        return config

    def _without(self, sequences: tuple[tuple[int, ...], ...]) -> Any:
        tokenizer = self._pipeline.get_tokenizer()
        words = [tokenizer.decode(list(sequence), skip_special_tokens=False) for sequence in sequences]
        if not all(words):
            raise Unsupported(
                "bad_words_list holds tokens that are no text by themselves, such as lone bytes"
            )
        constraint = genai.StructuredOutputConfig()
        constraint.grammar = forbid(words)
        return constraint

    def step(self) -> list[StepResult]:
        """Run one step (the library holds the GIL meanwhile) and read every sequence that has news."""
        self._pipeline.step()
        self._iterations += 1
        results = []
        for key, handle in list(self._handles.items()):
            if not handle.can_read():
                continue
            (output,) = handle.read().values()
            reason = _FINISH.get(output.finish_reason)
            if reason is not None:
                del self._handles[key]
            results.append(StepResult(key, output.generated_ids, output.generated_log_probs, reason))
        return results

    def abort(self, key: int) -> None:
        """Cancel in the pipeline, which forgets the sequence at its next step."""
        handle = self._handles.pop(key, None)
        if handle is None:
            return
        handle.cancel()
        if not self._handles:
            self._pipeline.step()  # nothing else would make it give the KV blocks back

    def rebuild(self) -> None:
        """Load the model again."""
        self._handles.clear()
        del self._pipeline
        self._pipeline = self._build()

    def stats(self) -> EngineStats:
        """Block counts from the pipeline's usage percentage, which is that of the last step's start."""
        metrics = self._pipeline.get_metrics()
        usage = metrics.cache_usage / 100 if self._handles else 0.0
        return EngineStats(
            max_active=self._settings.max_sequences,
            generation=len(self._handles),
            kv_blocks_max=self._blocks,
            kv_blocks_used=round(self._blocks * usage),
            kv_tokens_per_block=BLOCK_TOKENS,
            memory_bytes=metrics.cache_size_in_bytes,
            iterations=self._iterations,
        )
