"""Refusing new requests while the server finishes its live ones.

Triton itself answers a request that comes after SIGTERM as if the model did not exist. So whoever stops the
server first makes the file that NAIAD_DRAIN_FILE names; from then on new requests get a retryable error.
"""

from __future__ import annotations

import os

from naiad.contract.errors import Draining

__all__ = ["DRAIN_FILE_VARIABLE", "refuse_while_draining"]

DRAIN_FILE_VARIABLE = "NAIAD_DRAIN_FILE"
_path = os.environ.get(DRAIN_FILE_VARIABLE)


def refuse_while_draining() -> None:
    """Raise Draining while the server is being stopped."""
    if _path and os.path.exists(_path):
        raise Draining("the server is shutting down and takes no new requests; retry elsewhere or later")
