"""Free space and memory, file digests and publishing by rename: what makes a build all or nothing on disk."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from naiad_build.errors import BuildError, NotEnoughSpaceError

__all__ = ["ensure_free_memory", "ensure_free_space", "publish", "sha256_of", "staging_directory"]

_BLOCK = 1 << 20


def ensure_free_space(directory: Path, needed_bytes: int, purpose: str) -> None:
    """Raise `NotEnoughSpaceError` when the disk of `directory` has less than `needed_bytes` free."""
    free = shutil.disk_usage(directory).free
    if free < needed_bytes:
        raise NotEnoughSpaceError(
            f"{purpose} needs {needed_bytes / 1e6:,.0f} MB of free disk at {directory}, there are "
            f"{free / 1e6:,.0f} MB; free some, or choose another place with --artifacts"
        )


def ensure_free_memory(needed_bytes: float, purpose: str) -> None:
    """Raise `NotEnoughSpaceError` when less than `needed_bytes` of memory is free for use."""
    free = psutil.virtual_memory().available
    if free < needed_bytes:
        raise NotEnoughSpaceError(
            f"{purpose} needs about {needed_bytes / 1e9:,.1f} GB of memory, there are {free / 1e9:,.1f} GB "
            "free; end what takes it, or use a larger machine"
        )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file at `path` in lower-case hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def staging_directory(parent: Path, name: str) -> Iterator[Path]:
    """Give a fresh folder inside `parent`, on the disk it is published to; what is left of it is removed."""
    parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=parent, prefix=f".{name}.making-"))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def publish(staging: Path, final: Path, *, replace: bool = False) -> None:
    """Rename the complete folder `staging` to `final`, after its files reached the disk.

    With `replace`, an existing `final` is moved aside and deleted afterwards. Between the two renames there
    is no `final` for some microseconds; files already open stay readable.

    Raises:
        BuildError: `final` exists already and `replace` is false.
    """
    staging.chmod(0o755)  # mkdtemp made it private; the server may run as another user
    for path in (*sorted(staging.rglob("*")), staging):
        _sync(path)
    if final.exists() and not replace:
        raise BuildError(f"{final} exists already")
    old = final.with_name(f"{staging.name}.old")
    if final.exists():
        final.rename(old)
    try:
        staging.rename(final)
    except OSError:
        if old.exists():
            old.rename(final)
        raise
    _sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
