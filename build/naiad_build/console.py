"""Progress of long steps on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["ProgressBars"]


class ProgressBars:
    """Draws one line a step on a terminal: a bar where the size is known, a spinner where it is not."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[size]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._step: str | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressBars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()
        self._progress.stop()

    def report(self, step: str, done_bytes: int = 0, total_bytes: int | None = None) -> None:
        """Draw `step`; a new one finishes the one before."""
        if step != self._step or self._task is None:
            self._finish()
            self._step, self._task = step, self._progress.add_task(step, total=total_bytes, size="")
        size = f"{done_bytes / 1e6:,.0f} of {total_bytes / 1e6:,.0f} MB" if total_bytes else ""
        self._progress.update(self._task, completed=done_bytes, total=total_bytes, size=size)

    def _finish(self) -> None:
        if self._task is not None:
            total = self._progress.tasks[self._task].total or 1
            self._progress.update(self._task, total=total, completed=total)
        self._task = None
