"""A strict stand-in for Triton's `triton_python_backend_utils`: hosts run in this process, without a server.

It refuses what Triton 2.51 refuses (the rules of python_backend's response_sender.cc, infer_request.cc,
pb_tensor.cc and metric.cc), and more where being strict costs nothing: arrays that are not C-contiguous,
text items that are no text, metrics of one family with different label names.

`install` puts the module into `sys.modules` once; `FakeServer` is what it is connected to, one a test.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

from tests.harness.fake_triton_data import (
    Array,
    InferenceResponse,
    Tensor,
    TritonError,
    TritonModelException,
    refuse_unless,
    serialize_byte_tensor,
    typed,
)
from tests.harness.fake_triton_metrics import Metric, MetricFamily

__all__ = ["FakeServer", "IncomingRequest", "InferenceRequest", "Sent", "install"]

FINAL = 1  # TRITONSERVER_RESPONSE_COMPLETE_FINAL


@dataclass(frozen=True)
class Sent:
    """One message as the client of a request receives it."""

    tensors: Mapping[str, Array]
    error: str | None
    code: int | None
    final: bool
    empty: bool  # only the flag


class ResponseSender:
    """Sends for one request; a request that Triton did not deliver has none."""

    def __init__(self, request: IncomingRequest) -> None:
        self._request = request

    def is_cancelled(self) -> bool:
        return self._request.cancelled

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if response is not None:
            typed(response, InferenceResponse, "the response")
        unable = "Unable to send response. "
        refuse_unless(flags in (0, FINAL), unable + "Unsupported flag provided.")
        refuse_unless(flags == FINAL or response is not None, "Inference Response object must be provided")
        request = self._request
        with request.changed:
            if not request.decoupled:
                several = unable + "Non-decoupled model cannot send more than one response."
                refuse_unless(response is None or not request.sent, several)
                early = unable + "Non-decoupled model cannot send complete final before sending a response."
                refuse_unless(response is not None or bool(request.sent), early)
            refuse_unless(not request.closed, unable + "Response sender has been closed.")
            request.closed = flags == FINAL  # as in the stub, also when what follows fails
            if request.before_send is not None:
                request.before_send(response)
            request.sent.append(_as_sent(response, flags))
            request.changed.notify_all()


def _as_sent(response: InferenceResponse | None, flags: int) -> Sent:
    tensors = () if response is None else response.output_tensors()
    error = None if response is None else response.error()
    return Sent(
        {tensor.name(): tensor.snapshot() for tensor in tensors},
        None if error is None else error.message(),
        None if error is None else error.code(),
        flags == FINAL,
        response is None,
    )


class InferenceRequest:
    """A request made by a model for another model (business logic scripting)."""

    server: ClassVar[FakeServer]

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        parameters: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        for name in requested_output_names:
            typed(name, str, "a requested output")
            refuse_unless(name != "", "Requested output name should not be empty.")
        for tensor in inputs:
            typed(tensor, Tensor, "an input")
        typed(request_id, str, "request_id")
        typed(timeout, int, "timeout")
        if timeout < 0:
            raise TypeError("incompatible constructor arguments: timeout is unsigned")
        self.model_name = model_name
        self._request_id, self._inputs, self._requested = (
            request_id,
            list(inputs),
            list(requested_output_names),
        )
        self._timeout, self._parameters = timeout, json.dumps(dict(parameters or {}))

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def request_id(self) -> str:
        return self._request_id

    def requested_output_names(self) -> list[str]:
        return self._requested

    def parameters(self) -> str:
        return self._parameters

    def timeout(self) -> int:
        return self._timeout

    def exec(self, decoupled: bool = False) -> Iterator[InferenceResponse]:
        """Call the model. The iterator of a decoupled call is synchronous and has no cancel."""
        if not decoupled:
            raise NotImplementedError("the fake serves decoupled calls only")
        model = self.server.models.get(self.model_name)
        if model is None:
            raise TritonModelException(f"Failed for BLS request: unknown model '{self.model_name}'")
        return iter(model(self))

    def tensors(self) -> dict[str, Array]:
        """All inputs by name, as the called model sees them."""
        return {tensor.name(): tensor.snapshot() for tensor in self._inputs}


class IncomingRequest(InferenceRequest):
    """A request that Triton delivers to a model; the test's side of it is `sent`, `cancel` and `wait_ended`.

    Args:
        decoupled: whether the model it is for may send any number of responses.
        before_send: is called with each response and may raise, as a full shared memory does.
    """

    def __init__(
        self,
        *,
        decoupled: bool,
        before_send: Callable[[InferenceResponse | None], None] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.decoupled, self.before_send = decoupled, before_send
        self.cancelled = self.closed = False
        self.sent: list[Sent] = []
        self.changed = threading.Condition(threading.RLock())

    def get_response_sender(self) -> ResponseSender:
        return ResponseSender(self)

    def exec(self, decoupled: bool = False) -> Iterator[InferenceResponse]:
        raise TritonModelException("a delivered request cannot be executed again")

    @property
    def ended(self) -> bool:
        return any(message.final for message in self.sent)

    def cancel(self) -> None:
        self.cancelled = True

    def wait_for(self, condition: Callable[[], bool], within_s: float = 10.0) -> None:
        """Wait until `condition` holds, looking after every message; TimeoutError otherwise."""
        deadline = time.monotonic() + within_s
        with self.changed:
            while not condition():
                if not self.changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"waited {within_s:g} s; so far: {self.sent}")

    def wait_ended(self, within_s: float = 10.0) -> list[Sent]:
        """Return all messages once the terminal one is there."""
        self.wait_for(lambda: self.ended, within_s)
        return self.sent


class FakeServer:
    """What the module is connected to during one test.

    Attributes:
        models: name -> what answers the calls of that model.
        families: the metric families that are alive.
        requests: every request delivered through `request`.
    """

    def __init__(self) -> None:
        self.models: dict[str, Callable[[InferenceRequest], Iterable[InferenceResponse]]] = {}
        self.families: weakref.WeakValueDictionary[str, MetricFamily] = weakref.WeakValueDictionary()
        self.requests: list[IncomingRequest] = []

    def request(
        self,
        inputs: Mapping[str, Array],
        *,
        outputs: Sequence[str] = (),
        request_id: str = "",
        decoupled: bool = True,
        timeout_us: int = 0,
        parameters: Mapping[str, str | int | bool] | None = None,
        before_send: Callable[[InferenceResponse | None], None] | None = None,
    ) -> IncomingRequest:
        """Make a request as Triton delivers it."""
        request = IncomingRequest(
            decoupled=decoupled,
            before_send=before_send,
            inputs=[Tensor(name, array) for name, array in inputs.items()],
            requested_output_names=outputs,
            request_id=request_id,
            timeout=timeout_us,
            parameters=parameters,
        )
        self.requests.append(request)
        return request

    def metric(self, family: str, **labels: str) -> Metric:
        """Return the one metric of a family whose labels include `labels`."""
        (metric,) = [
            metric for metric in self.families[family].metrics if labels.items() <= metric.labels.items()
        ]
        return metric

    def connect(self) -> FakeServer:
        """Make this the server of the module's requests and metric families."""
        InferenceRequest.server = self
        MetricFamily.alive = self.families
        return self


def install() -> ModuleType:
    """Put the module into `sys.modules` unless it is there; import `naiad.triton` afterwards."""
    name = "triton_python_backend_utils"
    module = sys.modules.get(name)
    if module is None:
        module = ModuleType(name)
        for part in (
            InferenceRequest, InferenceResponse, MetricFamily, Tensor, TritonError, TritonModelException,
            serialize_byte_tensor,
        ):  # fmt: skip
            setattr(module, part.__name__, part)
        module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL  # type: ignore[attr-defined]
        sys.modules[name] = module
    return module
