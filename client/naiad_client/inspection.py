"""What a server says about itself: its models and its health."""

from __future__ import annotations

from dataclasses import dataclass

from tritonclient.grpc import service_pb2

from naiad_client.errors import EngineUnavailable, NaiadError
from naiad_client.request import GenerationRequest

__all__ = ["CANARY", "Health", "ModelState", "model_states", "not_well"]

CANARY = GenerationRequest.ask("Hi", max_tokens=1)
"""The smallest real generation. Triton stays "ready" after a model's process died; only this proves it."""


@dataclass(frozen=True, slots=True)
class ModelState:
    """One version of a model in the server's repository.

    Attributes:
        name: of the model.
        version: empty when it was never loaded.
        state: Triton's word: ``READY``, ``UNAVAILABLE``, ``LOADING``, ``UNLOADING`` or empty (never loaded).
        reason: why it is unavailable, when Triton says so.
    """

    name: str
    version: str
    state: str
    reason: str

    @property
    def ready(self) -> bool:
        """Whether requests can be sent to it."""
        return self.state == "READY"


@dataclass(frozen=True, slots=True)
class Health:
    """The outcome of a health check, step by step; a step after a failed one is not tried.

    Attributes:
        live: the server process answers.
        ready: the server says that all its models are ready.
        canary_s: how long a generation of one token took; None when it failed.
        problem: what failed; None when all is well.
    """

    live: bool
    ready: bool
    canary_s: float | None
    problem: NaiadError | None

    @property
    def healthy(self) -> bool:
        """Whether a request would succeed now."""
        return self.problem is None


def model_states(index: service_pb2.RepositoryIndexResponse) -> tuple[ModelState, ...]:
    """Return the models of Triton's repository index, sorted by name and version."""
    found = (ModelState(entry.name, entry.version, entry.state, entry.reason) for entry in index.models)
    return tuple(sorted(found, key=lambda model: (model.name, model.version)))


def not_well(live: bool) -> Health:
    """Return the outcome for a server that answers but is not live, or live but not ready."""
    return Health(
        live, False, None, EngineUnavailable(f"the server says that it is not {'ready' if live else 'live'}")
    )
