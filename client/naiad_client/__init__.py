"""Streaming gRPC client of a Naiad server, or of any Triton model with NVIDIA's text contract.

    from naiad_client import Client, GenerationRequest

    with Client("127.0.0.1:8001") as client, client.stream("Why is the sky blue?") as stream:
        for chunk in stream:
            print(chunk.text, end="", flush=True)

`AsyncClient` is the same for asyncio. Errors: `naiad_client.errors`. Command line: `naiad_client.cli`.
"""

from naiad_client.aio import AsyncClient, AsyncStream
from naiad_client.client import DEFAULT_MODEL, DEFAULT_URL, Client, Stream
from naiad_client.errors import (
    Cancelled,
    ConnectFailed,
    DeadlineExceeded,
    Draining,
    EngineStalled,
    EngineUnavailable,
    FirstTokenTimeout,
    IdleTimeout,
    IncompleteStream,
    InternalError,
    InvalidArgument,
    ModelNotFound,
    NaiadError,
    Overloaded,
    PromptTooLong,
    TotalTimeout,
    Unsupported,
)
from naiad_client.inspection import Health, ModelState
from naiad_client.limits import Retries, Timeouts
from naiad_client.request import GenerationRequest, Message
from naiad_client.response import Chunk, Completion, Timings, Usage

__all__ = [
    "DEFAULT_MODEL",
    "DEFAULT_URL",
    "AsyncClient",
    "AsyncStream",
    "Cancelled",
    "Chunk",
    "Client",
    "Completion",
    "ConnectFailed",
    "DeadlineExceeded",
    "Draining",
    "EngineStalled",
    "EngineUnavailable",
    "FirstTokenTimeout",
    "GenerationRequest",
    "Health",
    "IdleTimeout",
    "IncompleteStream",
    "InternalError",
    "InvalidArgument",
    "Message",
    "ModelNotFound",
    "ModelState",
    "NaiadError",
    "Overloaded",
    "PromptTooLong",
    "Retries",
    "Stream",
    "Timeouts",
    "Timings",
    "TotalTimeout",
    "Unsupported",
    "Usage",
]
