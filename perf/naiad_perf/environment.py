"""What a figure was measured with and on: versions and machine, as written into every run."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import psutil

__all__ = ["describe_environment"]

_PACKAGES = ("naiad", "openvino", "openvino-genai", "numpy", "grpcio", "tritonclient")
_LIMIT_S = 10.0
_ROOT = Path(__file__).resolve().parents[2]


def describe_environment() -> dict[str, str]:
    """Return name -> value; what does not exist here is left out."""
    found = {
        "commit": _commit(),
        "python": platform.python_version(),
        "system": f"{_distribution()}, kernel {platform.release()}",
        "cpu": _cpu(),
        "cores": str(os.cpu_count() or ""),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "gpu": _answer("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"),
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {name: value for name, value in found.items() if value}


def _commit() -> str:
    """Return the commit of a checkout, marked when files differ from it."""
    if not (_ROOT / ".git").exists():
        return ""
    commit = _answer("git", "-C", str(_ROOT), "rev-parse", "--short=12", "HEAD")
    changed = _answer("git", "-C", str(_ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{commit} with changes" if commit and changed else commit


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _answer(*command: str) -> str:
    """Return what a program prints; empty when there is none of that name, or it fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "; ".join(done.stdout.split("\n")).strip("; ") if done.returncode == 0 else ""
