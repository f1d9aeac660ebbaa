"""The folder of a sweep: one Parquet file a finished run, and what is needed to go on with it later.

scenario.yaml     the scenario as it was given
sweep.json        what finished runs depend on, to notice that it changed
*.parquet         one finished run each: <point>__<subject>__<repeat>
drivers/          the load generators' own files, by run and attempt
server-*.log      what our servers said
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from naiad_perf.errors import PerfError, ScenarioError
from naiad_perf.records import Run, check_records_work, read_run, write_run
from naiad_perf.workload.scenario import Scenario

__all__ = ["SweepFolder"]

_FORMAT = 1
# A promise is judged afterwards, and further repeats add to finished ones: none of these changes a run.
_HARMLESS = {"summary", "slos", "error_budget", "repeats"}


class SweepFolder:
    """One folder, held by one sweep at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Create the folder and keep other sweeps out of it.

        Raises:
            PerfError: another sweep uses it, or it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise PerfError(f"{self.path} cannot be written: {error.strerror or error}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise PerfError(
                    f"another sweep is writing {self.path}: wait for it, or give --out"
                ) from error
            yield

    def begin(self, scenario: Scenario, text: str, *, anew: bool) -> None:
        """Make the folder that of this scenario; finished runs of the same one stay.

        Args:
            scenario: to be measured.
            text: its file's content, to be kept.
            anew: forget finished runs.

        Raises:
            ScenarioError: finished runs are those of another scenario; the message says what differs.
        RecordError: runs cannot be written here.
        """
        check_records_work()
        now = _what_runs_depend_on(scenario)
        notes = self.path / "sweep.json"
        if anew:
            self._forget()
        elif notes.exists() and self.finished():
            _check_unchanged(
                json.loads(notes.read_text(encoding="utf-8")), now, self.path, len(self.finished())
            )
        _write(self.path / "scenario.yaml", text)
        _write(notes, json.dumps(now, indent=1) + "\n")

    def finished(self) -> frozenset[str]:
        """Return the names of finished runs."""
        return frozenset(path.stem for path in self.path.glob("*.parquet"))

    def runs(self) -> list[Run]:
        """Read all finished runs, in order of running.

        Raises:
            RecordError: one is not readable.
        """
        runs = [read_run(path) for path in sorted(self.path.glob("*.parquet"))]
        return sorted(runs, key=lambda run: run.facts.position)

    def keep(self, name: str, run: Run) -> None:
        """Write a finished run; the file appears whole or not at all.

        Raises:
            PerfError: it cannot be written, for example because the disk is full.
        """
        try:
            write_run(run, self.path / f"{name}.parquet")
        except OSError as error:
            raise PerfError(f"the run {name} cannot be kept in {self.path}: {error}") from error

    def newest(self) -> Run | None:
        """Read the run that was finished last; None when there is none.

        Raises:
            RecordError: it is not readable.
        """
        paths = sorted(self.path.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
        return read_run(paths[-1]) if paths else None

    def next_attempt(self, name: str) -> tuple[Path, int]:
        """Make an empty folder for the next attempt at a run; return it with the attempt's number, from 1."""
        home = self.path / "drivers" / name
        home.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(path.name) for path in home.iterdir() if path.name.isdigit()), default=0)
        folder = home / str(number)
        folder.mkdir()
        return folder, number

    def _forget(self) -> None:
        for path in [*self.path.glob("*.parquet"), self.path / "sweep.json", self.path / "scenario.yaml"]:
            path.unlink(missing_ok=True)
        shutil.rmtree(self.path / "drivers", ignore_errors=True)


def _what_runs_depend_on(scenario: Scenario) -> dict[str, Any]:
    content = scenario.model_dump(mode="json", exclude=_HARMLESS)
    if scenario.trace is not None and scenario.trace.file is not None:
        # Its content, wherever it lies.
        content["trace"]["file"] = hashlib.sha256(scenario.trace.file.read_bytes()).hexdigest()
    return {"format": _FORMAT, "scenario": content}


def _check_unchanged(before: dict[str, Any], now: dict[str, Any], path: Path, finished: int) -> None:
    if before == now:
        return
    old, new = before.get("scenario", {}), now["scenario"]
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    lines = [f"  {key}: {_short(old.get(key))} -> {_short(new.get(key))}" for key in changed]
    raise ScenarioError(
        "\n".join(
            (
                f"{path} has {finished} finished runs of another scenario; changed:",
                *lines,
                "give --out FOLDER to keep them, or --anew to throw them away",
            )
        )
    )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _write(path: Path, text: str) -> None:
    making = path.with_name(f".{path.name}.{os.getpid()}")
    making.write_text(text, encoding="utf-8")
    making.replace(path)
