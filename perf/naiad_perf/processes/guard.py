"""Ends a process of ours when we are gone, however we went: a shell blocked on a pipe that only we hold."""

from __future__ import annotations

import subprocess

__all__ = ["Guard"]

# End of file on stdin: whoever started it died. A line: all ended well, there is nothing to do.
_ASK = 'read -r _ && exit 0; kill -s TERM "$1"; sleep 2; kill -s TERM "$1"'
_KILL_GROUP = 'read -r _ && exit 0; kill -s KILL -- "-$1"'
_DISMISS_LIMIT_S = 5.0


class Guard:
    """One guard over one process; `dismiss` it once that process has ended."""

    def __init__(self, pid: int, *, kill_group: bool) -> None:
        """Start to guard.

        Args:
            pid: process to end with us.
            kill_group: kill the process group that it leads; otherwise it is asked to end, twice, which
                makes `naiad serve` end at once and its models with it.
        """
        script = _KILL_GROUP if kill_group else _ASK
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", script, "naiad-bench-guard", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is not for it
        )

    def dismiss(self) -> None:
        """End the guard and leave the process alone; once more does no harm."""
        if self._shell.poll() is not None:
            return
        try:
            self._shell.communicate(b"\n", timeout=_DISMISS_LIMIT_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._shell.kill()
            self._shell.wait()
