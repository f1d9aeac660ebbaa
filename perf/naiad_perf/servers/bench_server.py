"""A server under measurement, and when a request to it would succeed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable

from tritonclient.grpc import service_pb2

from naiad_client import (
    Client,
    GenerationRequest,
    InvalidArgument,
    ModelNotFound,
    NaiadError,
    Retries,
    Timeouts,
    Unsupported,
)
from naiad_client.grpc_sync import GrpcTransport
from naiad_perf.errors import PerfError
from naiad_perf.servers.figures import ModelFacts, read_metrics
from naiad_perf.workload.scenario import ExistingServer

__all__ = ["BenchServer", "GivenServer"]

HEALTH_LIMIT_S = 900.0
"""A large engine takes minutes to load."""
_ANSWER_LIMIT_S = 30.0
"""A server that somebody else runs may be starting; one at a wrong address never answers."""
_POLL_S = 0.2
_CONNECT_S = 5.0
_PROBE_LIMIT_S = 120.0

Tell = Callable[[str], None]


class BenchServer(ABC):
    """A server under measurement.

    Attributes:
        name: for messages.
        grpc_url: ``host:port``.
        http_url: ``host:port``.
    """

    def __init__(self, name: str, grpc_url: str, http_url: str) -> None:
        self.name = name
        self.grpc_url = grpc_url
        self.http_url = http_url
        self.triton = GrpcTransport(grpc_url, connect_s=_CONNECT_S)
        """For unary calls of Triton's service."""

    def start(self) -> None:  # noqa: B027 (nothing to start is a fine start)
        """Start it, without waiting; nothing to do for a server that somebody else runs."""

    def stop(self, *, politely: bool) -> None:
        """Stop what `start` started and close the connection."""
        self.triton.close()

    @abstractmethod
    def progress(self) -> str | None:
        """Return what it is doing while it is not ready yet, None when it says that it is.

        Raises:
            PerfError: it will not become ready.
        """

    @abstractmethod
    def incarnation(self) -> Hashable:
        """Return what changes when the server is started anew."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Return the samples of its Prometheus page; empty where there is none."""

    @abstractmethod
    def cpu_s(self) -> float | None:
        """Return the processor time its processes have used; None when that is not known."""

    def forget_memory(self) -> None:  # noqa: B027 (where nothing is known, there is nothing to forget)
        """Forget what memory its processes held at most."""

    def memory_bytes(self) -> int | None:
        """Return the most memory that its processes held since then; None when that is not known."""
        return None

    def wait_healthy(self, model: str, tell: Tell) -> ModelFacts:
        """Wait until a request would succeed, proved with one token; return the server's facts about `model`.

        Args:
            model: that is to be measured.
            tell: called with what the server is doing, each time that changes.

        Raises:
            PerfError: it does not become healthy, has no such model, or it cannot be asked for a token.
        """
        deadline_s = time.monotonic() + HEALTH_LIMIT_S
        said = ""
        while True:
            doing = self.progress()
            if doing is None:
                try:
                    facts = ModelFacts.ask(self.triton, model)
                    self._probe(facts)
                except (ModelNotFound, InvalidArgument, Unsupported) as error:
                    if self._triton_ready():
                        what = f"{model} on {self.name} cannot be measured"
                        raise PerfError(f"{what}: {error.message}") from error
                    doing = "not ready"
                except NaiadError as error:
                    doing = " ".join(error.message.split())
                else:
                    return facts
            if time.monotonic() > deadline_s:
                raise PerfError(f"{self.name} did not become healthy within {HEALTH_LIMIT_S:.0f} s: {doing}")
            if doing != said:
                said = doing
                tell(f"waiting for {self.name}: {doing}")
            time.sleep(_POLL_S)

    def _triton_ready(self) -> bool:
        try:
            request = service_pb2.ServerReadyRequest()
            return bool(self.triton.call("ServerReady", request, timeout_s=_CONNECT_S).ready)
        except NaiadError:
            return False

    def _probe(self, facts: ModelFacts) -> None:
        """Ask for one token, where the model takes text; Triton stays "ready" when a model's process died."""
        if facts.takes_ids:
            return
        limits = Timeouts(connect_s=_CONNECT_S, total_s=_PROBE_LIMIT_S)
        with Client(self.grpc_url, model=facts.name, timeouts=limits, retries=Retries(attempts=1)) as client:
            client.generate(GenerationRequest(text_input="the", max_tokens=1, stream=False))


class GivenServer(BenchServer):
    """A server that somebody else runs."""

    def __init__(self, addresses: ExistingServer) -> None:
        super().__init__(f"the server at {addresses.grpc}", addresses.grpc, addresses.http)
        self._metrics_url = addresses.metrics

    def start(self) -> None:
        """See that something answers there.

        Raises:
            PerfError: nothing does within half a minute.
        """
        deadline_s = time.monotonic() + _ANSWER_LIMIT_S
        while True:
            try:
                self.triton.call("ServerLive", service_pb2.ServerLiveRequest(), timeout_s=_CONNECT_S)
                return
            except NaiadError as error:
                if time.monotonic() > deadline_s:
                    reason = " ".join(error.message.split())
                    raise PerfError(f"{self.name} does not answer: {reason}") from error
            time.sleep(_POLL_S)

    def progress(self) -> str | None:
        """See `BenchServer.progress`; its own word is all that is known."""
        return None

    def incarnation(self) -> Hashable:
        """Always the same: from outside one process looks like another."""
        return None

    def metrics(self) -> dict[str, float]:
        """See `BenchServer.metrics`."""
        return read_metrics(self._metrics_url) if self._metrics_url else {}

    def cpu_s(self) -> float | None:
        """Not known of a server that may be on another machine."""
        return None
