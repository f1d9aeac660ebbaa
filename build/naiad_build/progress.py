"""How long steps report themselves: one callback, no terminal code in the workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

__all__ = ["Progress", "silent", "watch_growth"]

_POLL_S = 0.25


class Progress(Protocol):
    """Called at the start of a step and, where its size is known, while it runs; by one thread at a time."""

    def __call__(self, step: str, done_bytes: int = 0, total_bytes: int | None = None) -> None:
        """Report `step`; `total_bytes` is None while the amount of work is unknown."""


def silent(step: str, done_bytes: int = 0, total_bytes: int | None = None) -> None:
    """Report nothing."""


@contextmanager
def watch_growth(directory: Path, total_bytes: int, step: str, progress: Progress) -> Iterator[None]:
    """While the body runs, report the size of all files under `directory` as done of `total_bytes`."""
    finished = threading.Event()

    def report() -> None:
        while not finished.wait(_POLL_S):
            size = sum(map(_size, directory.rglob("*")))
            progress(step, min(size, total_bytes), total_bytes)

    watcher = threading.Thread(target=report, name="download-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # moved on between the listing and here
        return 0
