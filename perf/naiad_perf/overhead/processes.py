"""Processor time of each part of a running server, from its process tree."""

from __future__ import annotations

import re
from collections.abc import Mapping

import psutil

__all__ = ["PARTS", "part_of", "processor_time_s"]

PARTS = ("client", "tritonserver", "text model", "engine model", "engine", "supervisor", "other models")
"""In the order of the way that a token takes back, then what takes no part."""

_MODEL = re.compile(r"/([^/ ]+)/\d+/model\.py")
_MODEL_PARTS = {"tensorrt_llm_bls": "text model", "tensorrt_llm": "engine model"}


def part_of(command: str) -> str | None:
    """Return which part a command line belongs to; None for what is no part, such as guards."""
    if "triton_python_backend_stub" in command:
        model = _MODEL.search(command)
        return _MODEL_PARTS.get(model.group(1), "other models") if model else None
    if "naiad.engines.worker" in command:
        return "engine"
    if "bin/tritonserver" in command:
        return "tritonserver"
    if "naiad" in command and " serve" in command:
        return "supervisor"
    return None


def processor_time_s(pid: int) -> Mapping[str, float]:
    """Return the processor time used so far by each part of the server whose supervisor is `pid`."""
    used: dict[str, float] = {}
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return used
    for process in family:
        try:
            part = part_of(" ".join(process.cmdline()))
            times = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if part is not None:
            used[part] = used.get(part, 0.0) + times.user + times.system
    return used
