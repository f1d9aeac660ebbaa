"""The real perf_analyzer, fetched once and run on any x86-64 Linux, with a C library of its own where needed.

PyPI's binary wants glibc 2.38. A system with an older one (Debian 12, Ubuntu 22.04) gets the libraries of
the next release unpacked beside it, and the program is started through their loader.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from naiad_perf.errors import InstallError
from naiad_perf.processes.foreground import run_in_foreground
from naiad_perf.tools.newer_libraries import fetch_libraries, loader_prefix, newer_release

__all__ = ["VERSION", "environment", "install", "is_installed", "locate", "run"]

VERSION = "2.60.0"
_SHA256 = "23ef56b107ae9233e5cf09fbdf508dd9b936a52f1bae2f63f53c8117087b3f25"
_PLATFORM = "manylinux_2_38_x86_64"
_BINARY_IN_WHEEL = "perf_analyzer/bin/perf_analyzer"
_GLIBC_NEEDED = (2, 38)
_NEEDED_BYTES = 300_000_000  # package lists while fetching; about 45 MB stay
_ARTIFACTS = Path(".artifacts")

Report = Callable[[str], None]


def _silent(line: str) -> None:
    """Report nothing."""


def install(artifacts: Path = _ARTIFACTS, report: Report = _silent) -> None:
    """Fetch what is missing of perf_analyzer into ``<artifacts>/perf_analyzer``; at once if nothing is.

    Each part appears whole, by a rename, or not at all; two installations at a time wait for each other.

    Args:
        artifacts: folder for things fetched and made; created if absent.
        report: called with a line at the start of each step.

    Raises:
        InstallError: it cannot be fetched, or does not run here; the message says what to do.
    """
    home = _home(artifacts)
    if is_installed(artifacts):
        return
    if not _runs_here():
        raise InstallError(
            "perf_analyzer is a program for Linux with glibc on x86-64; this machine is not one"
        )
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone_in(home):
            _make(home, _binary(home).parent, lambda folder: _fetch_binary(folder, report))
            if _needs_libraries():
                release = newer_release()
                _make(home, _libraries(home), lambda folder: fetch_libraries(release, folder, report))
    except OSError as error:
        raise InstallError(
            f"perf_analyzer could not be stored in {home}: {error.strerror or error}"
        ) from error
    _try_out(locate(artifacts))


def is_installed(artifacts: Path = _ARTIFACTS) -> bool:
    """Whether `locate` would answer."""
    home = _home(artifacts)
    return _binary(home).is_file() and (not _needs_libraries() or _libraries(home).is_dir())


def locate(artifacts: Path = _ARTIFACTS) -> list[str]:
    """Return the start of the command line that runs perf_analyzer; its own arguments follow.

    Raises:
        InstallError: it is not installed under `artifacts`.
    """
    home = _home(artifacts)
    if not is_installed(artifacts):
        raise InstallError(f"perf_analyzer {VERSION} is not installed in {home}")
    binary = str(_binary(home))
    if not _needs_libraries():
        return [binary]
    return [*loader_prefix(_libraries(home)), "--argv0", "perf_analyzer", binary]


def run(arguments: Sequence[str], artifacts: Path = _ARTIFACTS, report: Report = _silent) -> int:
    """Run perf_analyzer on this terminal, installing it first if needed; return its exit status.

    Ctrl-C reaches perf_analyzer, which ends its measurement and reports; a signal that kills it gives 128
    plus the signal's number, as in a shell.

    Raises:
        InstallError: see `install`.
    """
    install(artifacts, report)
    return run_in_foreground([*locate(artifacts), *arguments], environment())


def environment(address: str = "") -> dict[str, str]:
    """Return the environment to start the program in.

    Libraries of this system are left out where the program has a C library of its own, which cannot load
    them. An `address` (``host:port``) on this machine is reached without a proxy.
    """
    dropped = {"LD_PRELOAD", "LD_LIBRARY_PATH"} if _needs_libraries() else set()
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    host = address.rpartition(":")[0].strip("[]")
    if host in {"localhost", "::1"} or host.startswith("127."):
        kept["no_proxy"] = ",".join(filter(None, (kept.get("no_proxy") or kept.get("NO_PROXY"), host)))
    return kept


def _home(artifacts: Path) -> Path:
    return artifacts.absolute() / "perf_analyzer"


def _binary(home: Path) -> Path:
    return home / VERSION / "perf_analyzer"


def _libraries(home: Path) -> Path:
    return home / "libraries"


def _runs_here() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64" and _glibc() is not None


def _glibc() -> tuple[int, int] | None:
    """Return this process's glibc version; None without glibc (musl, other systems)."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        major, minor = version.split(".")[:2]
    except (OSError, ValueError):
        return None
    return (int(major), int(minor)) if name == "glibc" else None


def _needs_libraries() -> bool:
    return (_glibc() or (0, 0)) < _GLIBC_NEEDED


@contextmanager
def _alone_in(home: Path) -> Iterator[None]:
    """Hold the installation lock of `home`, and clear away what a killed installation left."""
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in home.glob(".making-*"):
            shutil.rmtree(left)
        yield


def _make(home: Path, final: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder `final` by filling another and renaming it; nothing to do when it is there."""
    if final.is_dir():
        return
    free = shutil.disk_usage(home).free
    if free < _NEEDED_BYTES:
        raise InstallError(
            f"installing perf_analyzer needs {_NEEDED_BYTES / 1e6:.0f} MB of free disk at {home}, there are "
            f"{free / 1e6:.0f} MB: free some"
        )
    making = Path(tempfile.mkdtemp(dir=home, prefix=".making-"))
    try:
        fill(making)
        making.chmod(0o755)  # mkdtemp made it private
        making.rename(final)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _fetch_binary(folder: Path, report: Report) -> None:
    """Put the pinned wheel's binary into `folder`; pip brings its index and proxy settings, and verifies."""
    report(f"downloading perf_analyzer {VERSION}")
    pin = folder / "pin.txt"
    pin.write_text(f"perf-analyzer=={VERSION} --hash=sha256:{_SHA256}\n", encoding="utf-8")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary", ":all:", "--platform", _PLATFORM, "--require-hashes",
        "-d", str(folder), "-r", str(pin),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    if done.returncode:
        told = "\n".join(done.stderr.strip().splitlines()[-6:])
        raise InstallError(f"pip could not download perf-analyzer {VERSION}; pip says:\n{told}")
    (wheel,) = folder.glob("*.whl")
    binary = folder / "perf_analyzer"
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(_BINARY_IN_WHEEL) as packed,
        binary.open("wb") as out,
    ):
        shutil.copyfileobj(packed, out)
    binary.chmod(0o755)
    wheel.unlink()
    pin.unlink()


def _try_out(command: list[str]) -> None:
    """Raise `InstallError` unless the program starts, for example because a library is missing."""
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"perf_analyzer {VERSION} is installed but does not start: {error}") from error
    if done.returncode:
        told = (done.stderr or done.stdout).strip()[-500:]
        raise InstallError(f"perf_analyzer {VERSION} is installed but does not start:\n{told}")
