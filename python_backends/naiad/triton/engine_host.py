"""Host of model `tensorrt_llm`: Triton requests to an engine and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from naiad.contract import TENSORRT_LLM
from naiad.contract.errors import InvalidArgument, NaiadError
from naiad.serving.engine_factory import make_engine
from naiad.serving.engine_requests import EngineRow, read_rows, wants_stop
from naiad.telemetry import Recorder
from naiad.triton.answers import Answer
from naiad.triton.channel_answers import ChannelAnswers
from naiad.triton.drain import refuse_while_draining
from naiad.triton.logs import configure_logging
from naiad.triton.metrics import EngineMetrics
from naiad.triton.numpy_abi import self_test
from naiad.triton.requests import THROUGH_CHANNEL, ModelConfiguration, RequestParameters, read_inputs
from naiad.triton.responses import ResponseStream, as_naiad_error
from naiad.triton.row_sink import RowSink

__all__ = ["EngineHost"]


class EngineHost:
    """The Triton model: one engine, every request in flight at once, decoupled or not."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the engine; any wrong setting refuses the load by name."""
        configure_logging(args["model_name"])
        self_test()
        self._config = ModelConfiguration.of(TENSORRT_LLM, args)
        parameters = self._config.parameters
        self._max_beam_width = parameters.integer("max_beam_width", minimum=1)
        self._exclude_input = parameters.flag("exclude_input_in_output")
        self._recorder = Recorder()
        self._channels = ChannelAnswers()
        self._engine = make_engine(parameters, self._config.folder, self._recorder, self._channels.flush)
        self._metrics = EngineMetrics(
            self._config, self._engine, self._recorder, parameters.milliseconds("stats_check_period_ms")
        )

    def execute(self, requests: list[Any]) -> None:
        """Hand every request to the engine and return; answers are sent from the engine's thread."""
        for request in requests:
            stream = ResponseStream(request)
            try:
                self._accept(request, stream)
            except Exception as error:  # noqa: BLE001 - a request left without an answer leaks for ever
                self._refuse(stream, as_naiad_error(error, "reading a request"))

    def finalize(self) -> None:
        """Cancel what is live and free the engine."""
        self._metrics.close()
        self._engine.close()
        self._channels.close()

    def _refuse(self, stream: ResponseStream, error: NaiadError) -> None:
        self._recorder.failed(error.code)
        stream.fail(error)

    def _accept(self, request: Any, stream: ResponseStream) -> None:
        inputs = read_inputs(request, "input_lengths")
        parameters = RequestParameters.of(request, TENSORRT_LLM)
        request_id = request.request_id()
        if wants_stop(inputs):
            if not request_id:
                raise InvalidArgument("a stop request needs the request id of the request to stop")
            self._engine.stop(request_id)
            stream.send({}, final=True)  # a bare end is no answer of a non-decoupled model
            return
        if not parameters.errors_in_band:  # a BLS model's calls belong to requests that are live already
            refuse_while_draining()
        rows = read_rows(
            inputs,
            request_id=request_id,
            requested_outputs=request.requested_output_names(),
            limits=self._engine.limits,
            max_beam_width=self._max_beam_width,
            exclude_input_by_default=self._exclude_input,
            decoupled=self._config.decoupled,
            timeout_us=parameters.timeout_us,
        )
        if parameters.token_channel:
            self._accept_for_channel(parameters.token_channel, rows, stream)
            return
        answer = Answer(
            stream,
            len(rows),
            self._recorder,
            decoupled=self._config.decoupled,
            errors_in_band=parameters.errors_in_band,
        )
        for number, row in enumerate(rows):
            sink = RowSink(number, row, answer)
            try:
                self._engine.submit(row.request, sink)
            except NaiadError as error:
                sink.fail(error)

    def _accept_for_channel(self, address: str, rows: list[EngineRow], stream: ResponseStream) -> None:
        """Answer the call itself at once: while it is open it holds one of the few threads of its caller."""
        sinks = self._channels.sinks(address, rows, self._recorder)
        try:
            for row, sink in zip(rows, sinks, strict=True):
                self._engine.submit(row.request, sink)
        except NaiadError:
            self._engine.stop(rows[0].request.request_id)  # sequences that were accepted already
            raise
        stream.send({"finish_reason": np.array([[THROUGH_CHANNEL]], dtype=np.object_)}, final=True)
