"""TensorRT-LLM's LLM API (its PyTorch path) as an engine. NOT RUN ON A GPU.

Written against the documented API of TensorRT-LLM 1.2.1: `LLM(**settings)`, `generate_async` and its outputs.
There was no GPU to run it on; its tests use a small double of exactly the calls below
(tests/harness/tensorrt_llm_double.py).

The library batches by itself and answers through asyncio. One thread runs its event loop and a task a
sequence; a `step` here is a wait for whatever those have brought.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import threading
from collections.abc import AsyncIterator
from typing import Any, Protocol

from naiad.contract.errors import EngineUnavailable, InvalidArgument, Unsupported
from naiad.contract.generation import FinishReason, GenerationRequest, SamplingParams
from naiad.engines.base import EngineLimits, EngineStats
from naiad.engines.llmapi_settings import LlmApiSettings
from naiad.engines.stepper import Stepper, StepResult

__all__ = ["LlmApiStepper"]

_log = logging.getLogger(__name__)
_WAIT_S = 0.05
"""Longest a step waits, so that the loop above looks at cancels and deadlines meanwhile."""
_END_LIMIT_S = 60.0
_NEVER = -1  # an end id that no token has


class _Completion(Protocol):
    """The parts of `CompletionOutput` that are read."""

    token_ids: list[int]
    logprobs: list[Any] | None
    finish_reason: str | None


class _Output(Protocol):
    """The parts of `RequestOutput` that are used: the same object again with every step."""

    outputs: list[_Completion]

    def __aiter__(self) -> AsyncIterator[_Output]: ...
    def abort(self) -> None: ...


class LlmApiStepper(Stepper):
    """One `LLM`; see the module for how it is driven."""

    def __init__(self, settings: LlmApiSettings, limits: EngineLimits) -> None:
        self._settings = settings
        self._limits = limits
        self._live: set[int] = set()
        self._news: queue.SimpleQueue[StepResult | Exception | None] = queue.SimpleQueue()
        self._outputs: dict[int, _Output] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._iterations = 0
        self._llm = self._load()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="naiad-llmapi", daemon=True)
        self._thread.start()

    def _load(self) -> Any:
        try:
            from tensorrt_llm import LLM
        except ImportError as error:
            raise InvalidArgument(
                "engine llmapi needs the package tensorrt_llm 1.2.1, which NVIDIA's tritonserver containers "
                f"26.04 to 26.07 with TensorRT-LLM have: {error}"
            ) from error
        return LLM(model=str(self._settings.directory), skip_tokenizer_init=True, **self._settings.options)

    @property
    def limits(self) -> EngineLimits:
        """As given."""
        return self._limits

    @property
    def max_sequences(self) -> int:
        """As set; the library itself queues what does not fit its batch."""
        return int(self._settings.options["max_batch_size"])

    def check(self, request: GenerationRequest) -> None:
        """Refuse what the API has no public setting for.

        Raises:
            Unsupported: a bad word of several tokens.
        """
        if any(len(sequence) > 1 for sequence in request.sampling.bad_sequences):
            raise Unsupported("bad_words_list: engine llmapi takes words of a single token only")

    def add(self, key: int, request: GenerationRequest) -> None:
        """Hand the sequence to the library."""
        self._live.add(key)
        self._loop.call_soon_threadsafe(self._start, key, request)

    def step(self) -> list[StepResult]:
        """Wait a moment for news of any sequence, and return all there are.

        Raises:
            Exception: whatever ended the library's own engine.
        """
        try:
            news = [self._news.get(timeout=_WAIT_S)]
        except queue.Empty:
            return []
        while not self._news.empty():
            news.append(self._news.get())
        self._iterations += 1
        results = []
        for item in news:
            if isinstance(item, Exception):
                raise item
            if item is None or item.key not in self._live:
                continue
            if item.finish_reason is not None or item.error is not None:
                self._live.discard(item.key)
            results.append(item)
        return results

    def wake(self) -> None:
        """End a waiting `step`."""
        self._news.put(None)

    def abort(self, key: int) -> None:
        """Have the library give a sequence up."""
        self._live.discard(key)
        self._loop.call_soon_threadsafe(self._abort, key)

    def close(self) -> None:
        """Free the model and end the event loop."""
        self._shut_down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_END_LIMIT_S)
        if not self._thread.is_alive():
            self._loop.close()

    def rebuild(self) -> None:
        """Load the model again."""
        self._shut_down()
        self._news = queue.SimpleQueue()
        self._llm = self._load()

    def stats(self) -> EngineStats:
        """Only what is known without asking the library, whose own figures come a step late."""
        return EngineStats(
            max_active=self.max_sequences,
            generation=len(self._live),
            iterations=self._iterations,
        )

    def _shut_down(self) -> None:
        self._live.clear()
        try:
            asyncio.run_coroutine_threadsafe(self._give_up_all(), self._loop).result(_END_LIMIT_S)
            self._llm.shutdown()
        except Exception:  # noqa: BLE001 - it is being thrown away, for whatever reason
            _log.exception("the LLM API did not shut down cleanly")

    # Everything below runs on the event loop's thread.

    def _start(self, key: int, request: GenerationRequest) -> None:
        self._tasks[key] = self._loop.create_task(self._follow(key, request))

    def _abort(self, key: int) -> None:
        output = self._outputs.pop(key, None)
        task = self._tasks.pop(key, None)
        if output is not None:
            output.abort()
        if task is not None:
            task.cancel()

    async def _give_up_all(self) -> None:
        tasks = list(self._tasks.values())
        for key in list(self._tasks):
            self._abort(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, key: int, request: GenerationRequest) -> None:
        from tensorrt_llm.llmapi import RequestError

        news = self._news  # of this engine: a later one has its own
        try:
            output = self._asked(request)
            self._outputs[key] = output
            await self._pass_on(key, request, output, news)
        except InvalidArgument as error:
            news.put(StepResult(key, [], error=error))
        except RequestError as error:
            _log.warning("the LLM API gave up a request: %s", error)
            gone = EngineUnavailable("the engine could not serve the request; retry later")
            news.put(StepResult(key, [], error=gone))
        except Exception as error:  # noqa: BLE001 - it is raised by the next step
            news.put(error)
        finally:
            self._outputs.pop(key, None)
            self._tasks.pop(key, None)

    def _asked(self, request: GenerationRequest) -> _Output:
        try:
            output: _Output = self._llm.generate_async(
                list(request.prompt_ids), sampling_params=_sampling(request.sampling), streaming=True
            )
        except ValueError as error:
            raise InvalidArgument(f"the engine refused the request: {error}") from None
        return output

    async def _pass_on(
        self, key: int, request: GenerationRequest, output: _Output, news: queue.SimpleQueue[Any]
    ) -> None:
        read = 0
        async for state in output:
            completion = state.outputs[0]
            reason = FinishReason(completion.finish_reason) if completion.finish_reason else None
            ids = list(completion.token_ids[read:])
            log_probs = _log_probs(completion, read, ids) if request.sampling.log_probs else []
            read += len(ids)
            if reason is FinishReason.STOP and ids and ids[-1] in request.sampling.end_ids:
                ids, log_probs = ids[:-1], log_probs[: len(ids) - 1]
            news.put(StepResult(key, ids, log_probs, reason))
            if reason is not None:
                return
        news.put(EngineUnavailable("the LLM API ended a sequence without a reason"))


def _log_probs(completion: _Completion, start: int, ids: list[int]) -> list[float]:
    """Return the log probabilities of new tokens: plain numbers, or a mapping of candidates for each."""
    entries = (completion.logprobs or [])[start : start + len(ids)]
    return [
        float(entry[token].logprob) if isinstance(entry, dict) else float(entry)
        for token, entry in zip(ids, entries, strict=False)
    ]


def _sampling(sampling: SamplingParams) -> Any:
    """Return the library's own parameters; what is neutral is left out, since not every sampler takes it."""
    from tensorrt_llm import SamplingParams as LlmSamplingParams

    end_id = min(sampling.end_ids, default=_NEVER)
    given: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "end_id": end_id,
        "pad_id": max(end_id, 0),
        "detokenize": False,
    }
    if len(sampling.end_ids) > 1:
        given["stop_token_ids"] = sorted(sampling.end_ids - {end_id})
        given["include_stop_str_in_output"] = True  # the end is cut off here, with its log probability
    if sampling.bad_sequences:
        given["bad_token_ids"] = [sequence[0] for sequence in sampling.bad_sequences]
    if sampling.min_tokens:
        given["min_tokens"] = sampling.min_tokens
    if sampling.log_probs:
        given["logprobs"] = 1
    for name, neutral in (("repetition_penalty", 1.0), ("presence_penalty", 0.0), ("frequency_penalty", 0.0)):
        if getattr(sampling, name) != neutral:
            given[name] = getattr(sampling, name)
    if sampling.greedy:
        given["top_k"] = 1
    else:
        given["temperature"] = sampling.temperature
        given["top_p"] = 1.0 if sampling.top_p is None else sampling.top_p
        given["seed"] = secrets.randbits(63) if sampling.seed is None else sampling.seed
        if sampling.top_k:
            given["top_k"] = sampling.top_k
    return LlmSamplingParams(**given)
