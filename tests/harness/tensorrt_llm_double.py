"""A double of the calls that `naiad.engines.llmapi` makes into TensorRT-LLM 1.2.1, and of nothing else.

A keyword that the library does not have, or that has the wrong type, is an error here as it is there. Tokens
count up from the last of the prompt; token `REFUSED` as first of a prompt is refused by the executor, and
`DEADLY` ends the engine.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import ClassVar, Literal

import pytest

from naiad_build.tensorrt_llm.schema import check_llm_args

__all__ = ["DEADLY", "LLM", "REFUSED", "SamplingParams", "install"]

REFUSED, DEADLY = 97, 98


class RequestError(Exception):
    """As `tensorrt_llm.llmapi.RequestError`."""


@dataclass(kw_only=True)
class SamplingParams:
    """As `tensorrt_llm.SamplingParams`, with the fields that are used."""

    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int = 32
    detokenize: bool = True
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    bad_token_ids: list[int] | None = None
    min_tokens: int | None = None
    logprobs: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


@dataclass
class Logprob:
    """As `tensorrt_llm.executor.result.Logprob`."""

    logprob: float
    rank: int | None = None


@dataclass
class CompletionOutput:
    """As `tensorrt_llm.llmapi.CompletionOutput`: `token_ids` grows."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: Literal["stop", "length", "timeout", "cancelled"] | None = None


class RequestOutput:
    """As `tensorrt_llm.llmapi.RequestOutput`: iterating yields itself, once a step."""

    def __init__(self, llm: LLM, prompt: list[int], sampling: SamplingParams) -> None:
        asyncio.get_running_loop()  # the library's queue belongs to a running loop
        self._llm, self._prompt, self._sampling = llm, prompt, sampling
        self.outputs = [CompletionOutput(logprobs=[] if sampling.logprobs else None)]
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        out, sampling = self.outputs[0], self._sampling
        if self._prompt[0] == REFUSED:
            raise RequestError("the executor takes no such request")
        while out.finish_reason is None:
            await asyncio.sleep(self._llm.step_s)
            if self._prompt[0] == DEADLY:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            self._advance(out, sampling)
            yield self

    def _advance(self, out: CompletionOutput, sampling: SamplingParams) -> None:
        token = (self._prompt[-1] + len(out.token_ids) + 1) % 100
        extra = sampling.stop_token_ids or []
        if self.aborted:
            out.finish_reason = "cancelled"
            return
        early = len(out.token_ids) < (sampling.min_tokens or 0)
        ends = not early and token in (sampling.end_id, *extra)
        if token != sampling.end_id or early or sampling.include_stop_str_in_output:
            out.token_ids.append(token)
            if out.logprobs is not None:
                out.logprobs.append({token: Logprob(-float(token) / 8, rank=1)})
        if ends:
            out.finish_reason = "stop"
        elif len(out.token_ids) == sampling.max_tokens:
            out.finish_reason = "length"


class LLM:
    """As `tensorrt_llm.LLM`; `made` holds every one since `install`."""

    made: ClassVar[list[LLM]] = []
    step_s = 0.0

    def __init__(self, *, model: str, skip_tokenizer_init: bool, **options: object) -> None:
        check_llm_args(options)
        self.model, self.options = model, options
        self.skip_tokenizer_init = skip_tokenizer_init
        self.outputs: list[RequestOutput] = []
        self.sampling: list[SamplingParams] = []
        self.ended = False
        LLM.made.append(self)

    def generate_async(
        self, inputs: list[int], *, sampling_params: SamplingParams, streaming: bool
    ) -> RequestOutput:
        if not streaming or self.ended:
            raise AssertionError("not how it is called")
        if len(inputs) + sampling_params.max_tokens > 450:
            raise ValueError("the prompt and the answer are longer than max_seq_len")
        output = RequestOutput(self, inputs, sampling_params)
        self.outputs.append(output)
        self.sampling.append(sampling_params)
        return output

    def shutdown(self) -> None:
        self.ended = True


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the double where `import tensorrt_llm` finds it, for one test."""
    package, llmapi = ModuleType("tensorrt_llm"), ModuleType("tensorrt_llm.llmapi")
    package.LLM, package.SamplingParams = LLM, SamplingParams  # type: ignore[attr-defined]
    llmapi.RequestError = RequestError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorrt_llm", package)
    monkeypatch.setitem(sys.modules, "tensorrt_llm.llmapi", llmapi)
    monkeypatch.setattr(LLM, "made", [])
    monkeypatch.setattr(LLM, "step_s", 0.0)
