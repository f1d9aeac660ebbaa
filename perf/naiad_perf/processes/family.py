"""A process and its descendants: how much processor time they used, how much memory at most."""

from __future__ import annotations

from pathlib import Path

import psutil

__all__ = ["ProcessFamily"]

_RESET_PEAK = "5"
"""Written to clear_refs, sets a process's peak to what it holds now (proc(5))."""


class ProcessFamily:
    """A process and its descendants, as they are when asked."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @property
    def members(self) -> list[psutil.Process]:
        """Those alive; empty when the first is not."""
        try:
            first = psutil.Process(self._pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_s(self) -> float:
        """Return the processor time that all have used, those included that ended and were waited for."""
        total = 0.0
        for process in self.members:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def reset_peak_memory(self) -> None:
        """Forget the memory peaks so far, for example of loading; Linux only."""
        for process in self.members:
            try:
                Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
            except OSError:  # gone, or another user's
                continue

    def peak_memory_bytes(self) -> int | None:
        """Return the sum of the peaks, pages that several processes share counted once; None off Linux.

        Of each process its peak resident memory, less the part of its present memory that belongs to others
        (`VmHWM - (Rss - Pss)`). The peaks need not have been at the same moment.
        """
        total = 0
        for process in self.members:
            folder = Path(f"/proc/{process.pid}")
            try:
                peak = _kilobytes((folder / "status").read_text(encoding="ascii", errors="replace"), "VmHWM")
                rollup = (folder / "smaps_rollup").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            shared = _kilobytes(rollup, "Rss") - _kilobytes(rollup, "Pss")
            total += 1024 * max(0, peak - shared)
        return total or None


def _kilobytes(text: str, name: str) -> int:
    """Return a value of a /proc file of ``Name:  123 kB`` lines; 0 where it is absent (a zombie's)."""
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
