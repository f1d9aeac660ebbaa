"""Host of model `tensorrt_llm_bls`: text requests, each on a thread of its own, under one watchdog."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from naiad.contract import TENSORRT_LLM_BLS
from naiad.contract.errors import DeadlineExceeded, Overloaded
from naiad.serving.text_answers import TextAnswer
from naiad.serving.text_requests import PERF_METRICS, TextRow, read_text_rows
from naiad.telemetry import Recorder
from naiad.telemetry.families import TEXT_FAMILIES
from naiad.triton.answers import Answer
from naiad.triton.bls import EngineModel
from naiad.triton.drain import refuse_while_draining
from naiad.triton.logs import configure_logging
from naiad.triton.metrics import MetricPusher
from naiad.triton.numpy_abi import self_test
from naiad.triton.requests import ModelConfiguration, RequestParameters, read_inputs
from naiad.triton.responses import ResponseStream, as_naiad_error
from naiad.triton.tokenizers import load_tokenizer
from naiad.triton.watchdog import LiveCall, SilenceLimits, Watchdog

__all__ = ["TextHost"]

_log = logging.getLogger(__name__)


class TextHost:
    """The Triton model: as many requests at once as the parameter `max_live_requests` says."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the tokenizer; any wrong setting refuses the load by name."""
        configure_logging(args["model_name"])
        self_test()
        self._config = ModelConfiguration.of(TENSORRT_LLM_BLS, args)
        parameters = self._config.parameters
        self._tokenizer = load_tokenizer(self._config)
        self._accumulate = parameters.flag("accumulate_tokens")
        self._engine = EngineModel(parameters.text("tensorrt_llm_model_name"))
        self._default_timeout_s = parameters.milliseconds("default_timeout_ms")
        self._max_live = parameters.integer("max_live_requests", minimum=1)
        self._live = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(self._max_live, thread_name_prefix="naiad-text")
        limits = SilenceLimits(
            parameters.milliseconds("first_token_timeout_ms"), parameters.milliseconds("idle_timeout_ms")
        )
        period_s = parameters.milliseconds("cancellation_check_period_ms")
        self._watchdog = Watchdog(limits, period_s, self._engine.stop)
        self._recorder = Recorder()
        self._metrics = MetricPusher(
            self._config, TEXT_FAMILIES, self._recorder, parameters.milliseconds("stats_check_period_ms")
        )

    def execute(self, requests: list[Any]) -> None:
        """Start every request and return."""
        for request in requests:
            stream = ResponseStream(request)
            try:
                self._accept(request, stream)
            except Exception as error:  # noqa: BLE001 - a request left without an answer leaks for ever
                refusal = as_naiad_error(error, "reading a request")
                self._recorder.failed(refusal.code)
                stream.fail(refusal)

    def finalize(self) -> None:
        """End the threads."""
        self._watchdog.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._metrics.close()

    def _accept(self, request: Any, stream: ResponseStream) -> None:
        refuse_while_draining()
        arrival_s = time.monotonic()
        timeout_us = RequestParameters.of(request, TENSORRT_LLM_BLS).timeout_us
        timeout_s = timeout_us / 1e6 if timeout_us else self._default_timeout_s
        rows = read_text_rows(
            read_inputs(request, "max_tokens"),
            self._tokenizer,
            requested_outputs=request.requested_output_names(),
            decoupled=self._config.decoupled,
        )
        texts = [
            TextAnswer(row, self._tokenizer, skip_special_tokens=True, accumulate=self._accumulate)
            for row in rows
        ]
        with self._lock:
            if self._live + len(rows) > self._max_live:
                raise Overloaded(f"{self._live} requests are being served, the most allowed; retry later")
            self._live += len(rows)
        answer = Answer(
            stream,
            len(rows),
            self._recorder,
            decoupled=self._config.decoupled,
            empty_end=self._config.decoupled,
        )
        client_id = request.request_id()
        for row, text in zip(rows, texts, strict=True):
            call = LiveCall(secrets.token_hex(8), answer, arrival_s + timeout_s)
            self._threads.submit(self._serve, row, text, call, client_id, arrival_s)

    def _serve(
        self, row: TextRow, text: TextAnswer, call: LiveCall, client_id: str, arrival_s: float
    ) -> None:
        self._watchdog.watch(call)
        outcome = "abandoned"
        try:
            self._generate(row, call, text, arrival_s)
            if text.finish_reason is not None:
                outcome = text.finish_reason.value
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets one typed end
            failure = as_naiad_error(error, f"serving call {call.engine_id}")
            failure.partial = text.started  # the engine only knows what it delivered to this model
            outcome = failure.code
            call.answer.fail(row.batch_index or 0, failure)
        finally:
            self._watchdog.forget(call)
            with self._lock:
                self._live -= 1
        _log.info(
            "request id=%r call=%s prompt_tokens=%d output_tokens=%d outcome=%s seconds=%.3f",
            client_id[:128], call.engine_id, len(row.prompt_ids), text.output_tokens, outcome,
            time.monotonic() - arrival_s,
        )  # fmt: skip

    def _generate(self, row: TextRow, call: LiveCall, text: TextAnswer, arrival_s: float) -> None:
        remaining_s = call.deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise DeadlineExceeded("the request's deadline passed before it reached the engine")
        tensors = dict(row.engine_inputs)
        tensors["streaming"] = np.array([[self._config.decoupled]])
        responses = self._engine.generate(
            tensors, _engine_outputs(row), call.engine_id, round(remaining_s * 1e6)
        )
        streamed = False
        for response in responses:
            call.heard()
            for outgoing in text.feed(response):
                if row.streaming and not streamed:
                    self._recorder.first_token(time.monotonic() - arrival_s)
                    streamed = True
                call.answer.send(row.batch_index or 0, outgoing, last=text.done)
            if text.done:
                break
        for outgoing in text.close():
            call.answer.send(row.batch_index or 0, outgoing, last=text.done)
        # Stop strings end the text before the engine knows.
        if text.stopped_early:
            self._watchdog.stop_engine(call)


def _engine_outputs(row: TextRow) -> tuple[str, ...]:
    names = ["output_ids", "sequence_length", "finish_reason"]
    if row.sequences > 1:
        names.append("sequence_index")
    passed_on = {"cum_log_probs", "output_log_probs", *PERF_METRICS}
    if "return_log_probs" in row.engine_inputs or "return_perf_metrics" in row.engine_inputs:
        names.extend(sorted(passed_on & row.outputs | {"cum_log_probs", "output_log_probs"}))
    return tuple(names)
