"""Calls of Triton's HTTP endpoints whose bodies may be anything."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from tests.harness.server import LiveServer


def post(server: LiveServer, path: str, body: object, timeout_s: float = 60.0) -> tuple[int, str]:
    """Send `body` (bytes as they are, the rest as JSON) to `/v2/models/<path>`; return status and reply."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.http}/v2/models/{path}", data=data, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def infer_body(*tensors: tuple[str, list[int], str, list[Any]]) -> dict[str, Any]:
    """Body of `/infer`: (name, shape, datatype, data) of every input."""
    keys = ("name", "shape", "datatype", "data")
    return {"inputs": [dict(zip(keys, tensor, strict=True)) for tensor in tensors]}
