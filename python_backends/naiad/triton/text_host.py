"""Host of model `tensorrt_llm_bls`: text requests, each on a thread of its own, under one watchdog."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from naiad.contract import TENSORRT_LLM_BLS
from naiad.contract.errors import DeadlineExceeded, NaiadError, Overloaded
from naiad.serving.engine_responses import PERF_METRICS, read_chunk
from naiad.serving.text_answers import TextAnswer
from naiad.serving.text_requests import TextRow, read_text_rows
from naiad.serving.token_channel import TokenReceiver
from naiad.telemetry import Recorder
from naiad.telemetry.families import TEXT_FAMILIES
from naiad.triton.answers import Answer
from naiad.triton.bls import EngineModel
from naiad.triton.drain import refuse_while_draining
from naiad.triton.logs import configure_logging
from naiad.triton.metrics import MetricPusher
from naiad.triton.numpy_abi import self_test
from naiad.triton.requests import ModelConfiguration, RequestParameters, read_inputs, through_channel
from naiad.triton.responses import ResponseStream, as_naiad_error
from naiad.triton.text_delivery import TextDelivery
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
        self._own_engine = parameters.choice("tensorrt_llm_backend", "python", "tensorrtllm") == "python"
        self._engine = EngineModel(parameters.text("tensorrt_llm_model_name"), own=self._own_engine)
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
        self._tokens = TokenReceiver(merge=parameters.flag("coalesce_when_behind"))
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
        self._tokens.close()
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
            delivery = TextDelivery(
                row, text, call, arrival_s, self._recorder, partial(self._ended, client_id)
            )
            self._threads.submit(self._serve, delivery)

    def _serve(self, delivery: TextDelivery) -> None:
        self._watchdog.watch(delivery.call)
        self._tokens.expect(delivery.call.engine_id, delivery.take, delivery.fail)
        try:
            self._generate(delivery)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets one typed end
            delivery.fail(as_naiad_error(error, f"serving call {delivery.call.engine_id}"))

    def _generate(self, delivery: TextDelivery) -> None:
        """Call the engine; with a token channel this returns when the engine has accepted the call."""
        row, call = delivery.row, delivery.call
        remaining_s = call.deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise DeadlineExceeded("the request's deadline passed before it reached the engine")
        tensors = dict(row.engine_inputs)
        tensors["streaming"] = np.array([[self._config.decoupled]])
        responses = self._engine.generate(
            tensors,
            _engine_outputs(row, own_engine=self._own_engine),
            call.engine_id,
            round(remaining_s * 1e6),
            self._tokens.address,
        )
        for response in responses:
            if through_channel(response):
                return
            chunk = read_chunk(response)
            if chunk is not None:
                delivery.take(chunk)
            if delivery.ended:
                return
        delivery.finish()

    def _ended(self, client_id: str, delivery: TextDelivery, error: NaiadError | None) -> None:
        call, text = delivery.call, delivery.text
        self._tokens.forget(call.engine_id)
        self._watchdog.forget(call)
        if error is None and text.stopped_early:  # the text ends before the engine knows
            self._watchdog.stop_engine(call)
        with self._lock:
            self._live -= 1
        outcome = error.code if error else text.finish_reason and text.finish_reason.value
        _log.info(
            "request id=%r call=%s prompt_tokens=%d output_tokens=%d outcome=%s seconds=%.3f",
            client_id[:128], call.engine_id, len(delivery.row.prompt_ids), text.output_tokens, outcome,
            time.monotonic() - delivery.arrival_s,
        )  # fmt: skip


def _engine_outputs(row: TextRow, *, own_engine: bool) -> tuple[str, ...]:
    names = ["output_ids", "sequence_length"]
    if own_engine:
        names.append("finish_reason")
    if row.sequences > 1:
        names.append("sequence_index")
    if row.log_probs:
        names.append("output_log_probs")
    names.extend(sorted(row.outputs.intersection(PERF_METRICS)))
    return tuple(names)
