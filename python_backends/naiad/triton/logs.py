"""Logging of a model's process: one line an event to stderr, which Triton puts into its own log."""

from __future__ import annotations

import logging
import os
import sys

__all__ = ["configure_logging"]


def configure_logging(model_name: str) -> None:
    """Send the `naiad` loggers to stderr with the model's name; level from NAIAD_LOG_LEVEL (INFO)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {model_name} %(name)s: %(message)s"))
    logger = logging.getLogger("naiad")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(os.environ.get("NAIAD_LOG_LEVEL", "INFO").upper())
