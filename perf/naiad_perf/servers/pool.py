"""The servers of a sweep: one for each profile or address.

All are up for the whole sweep; only the one that is being measured has work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from naiad_perf.servers.bench_server import BenchServer, GivenServer
from naiad_perf.servers.own_server import OwnServer
from naiad_perf.workload.scenario import Subject

__all__ = ["Servers"]


class Servers:
    """All servers of a sweep, one a profile and one an existing address; leaving the context stops ours."""

    def __init__(self, subjects: Sequence[Subject], artifacts: Path, logs: Path) -> None:
        """Choose ports; nothing starts."""
        self._of: dict[object, BenchServer] = {}
        for subject in subjects:
            key = _key(subject)
            if key in self._of:
                continue
            if subject.server is not None:
                self._of[key] = GivenServer(subject.server)
            elif subject.profile is not None:
                self._of[key] = OwnServer(subject.profile, artifacts, logs / f"server-{subject.profile}.log")

    def __enter__(self) -> Servers:
        try:
            for server in self._of.values():
                server.start()
        except BaseException:
            self._stop(politely=False)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop(politely=kind is None)

    def of(self, subject: Subject) -> BenchServer:
        """Return the server that a subject is measured on."""
        return self._of[_key(subject)]

    def _stop(self, *, politely: bool) -> None:
        with contextlib.ExitStack() as stops:  # each is stopped, whatever becomes of another
            for server in self._of.values():
                stops.callback(server.stop, politely=politely)


def _key(subject: Subject) -> object:
    return subject.profile if subject.profile is not None else subject.server
