"""Python tools whose dependencies must not meet ours: each in an environment of its own, from a lock."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from naiad_build.errors import InstallError

__all__ = ["ToolEnvironment"]


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    """A pinned tool in ``<artifacts>/tools/<name>``.

    Attributes:
        name: of the tool and its folder.
        lock: requirements with hashes; a changed file means a new installation.
        artifacts: folder for things fetched and made.
        pythons: first minor version of Python 3 that it runs on, and the first that it does not.
        needed_bytes: disk that installing takes.
    """

    name: str
    lock: Path
    artifacts: Path
    pythons: tuple[int, int]
    needed_bytes: int

    @property
    def home(self) -> Path:
        """The virtual environment."""
        return self.artifacts.absolute() / "tools" / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.home / "bin" / "python"

    @property
    def is_installed(self) -> bool:
        """Whether what the lock asks for is there."""
        stamp = self.home / ".installed"
        return stamp.is_file() and stamp.read_text(encoding="ascii") == self._digest()

    def install(self, report: Callable[[str], None]) -> None:
        """Install what is missing; at once if nothing is. A killed installation is begun anew.

        Args:
            report: called with a line at the start of the installation.

        Raises:
            InstallError: it cannot be installed; the message says what to do.
        """
        if self.is_installed:
            return
        first, beyond = self.pythons
        if not first <= sys.version_info.minor < beyond:
            raise InstallError(
                f"{self.name} runs on Python 3.{first} to 3.{beyond - 1}, and this is "
                f"3.{sys.version_info.minor}: set Naiad up with one of those, or use another tool"
            )
        try:
            self.home.parent.mkdir(parents=True, exist_ok=True)
            with self._alone():
                if not self.is_installed:
                    self._make(report)
        except OSError as error:
            place = error.strerror or error
            raise InstallError(f"{self.name} could not be stored in {self.home}: {place}") from error

    def _make(self, report: Callable[[str], None]) -> None:
        free = shutil.disk_usage(self.home.parent).free
        if free < self.needed_bytes:
            raise InstallError(
                f"installing {self.name} needs {self.needed_bytes / 1e6:.0f} MB of free disk at "
                f"{self.home.parent}, there are {free / 1e6:.0f} MB: free some"
            )
        packages = sum("==" in line for line in self.lock.read_text(encoding="utf-8").splitlines())
        report(f"installing {self.name} and what it needs ({packages} packages) into {self.home}")
        shutil.rmtree(self.home, ignore_errors=True)
        try:
            self._call(sys.executable, "-m", "venv", str(self.home))
            self._fill(report)
            (self.home / ".installed").write_text(self._digest(), encoding="ascii")
        except BaseException:
            shutil.rmtree(self.home, ignore_errors=True)
            raise

    def _fill(self, report: Callable[[str], None]) -> None:
        """Install packages into the new, empty environment."""
        # A lock is complete. Left to look for more, pip takes a newer `name[extra]` than the locked `name`.
        self._pip_install("--no-deps", "-r", str(self.lock))

    def _pip_install(self, *arguments: str) -> None:
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes")
        self._call(str(self.python), *pip, *arguments)

    def _call(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
        if done.returncode:
            told = "\n".join((done.stderr or done.stdout).strip().splitlines()[-6:])
            raise InstallError(f"{self.name} could not be installed; {' '.join(command[1:4])} says:\n{told}")

    @property
    def _locks(self) -> tuple[Path, ...]:
        """All files that say what is installed."""
        return (self.lock,)

    def _digest(self) -> str:
        told = f"{sys.version_info.major}.{sys.version_info.minor}\n".encode()
        return hashlib.sha256(told + b"".join(lock.read_bytes() for lock in self._locks)).hexdigest()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.home.parent / f".{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
