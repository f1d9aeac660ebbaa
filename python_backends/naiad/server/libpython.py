"""Finds the shared library of the running Python, which Triton's Python stub loads."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from naiad.server.errors import InstallError

__all__ = ["find_libpython", "own_name", "search_folders", "stub_library"]

_NEEDED = re.compile(rb"libpython(3(?:-[0-9a-f]+)?\.\d+)\.so\.1\.0")


def stub_library(stub: Path) -> str:
    """Return the name of the Python library that the binary `stub` needs.

    Raises:
        InstallError: it names none: not a stub.
    """
    # A wheel repair renames a bundled library by appending the new name; the old one stays as dead text.
    found = list(_NEEDED.finditer(stub.read_bytes()))
    if not found:
        raise InstallError(
            f"{stub} does not look like Triton's Python stub: it needs no libpython",
            "remove the folder of this tritonserver and install it again",
        )
    return found[-1][0].decode()


def own_name(library: str) -> str:
    """Return the name that the running Python's library has when `library` is a bundled, hashed one."""
    return re.sub(r"-[0-9a-f]+", "", library)


def search_folders() -> list[Path]:
    """Return where the running Python's own library may be, the likeliest first."""
    variables = sysconfig.get_config_vars()
    multiarch = variables.get("MULTIARCH") or ""
    folders = [
        variables.get("LIBDIR"),
        f"{sys.base_prefix}/lib",
        variables.get("LIBPL"),
        f"/usr/lib/{multiarch}" if multiarch else None,
        f"/lib/{multiarch}" if multiarch else None,
        "/usr/local/lib",
        "/usr/lib64",
        "/usr/lib",
    ]
    return list(dict.fromkeys(Path(folder) for folder in folders if folder))


def find_libpython(library: str, folders: Sequence[Path] | None = None) -> Path:
    """Return the folder that holds `library`, for example ``libpython3.11.so.1.0``.

    Args:
        library: exact file name, so another minor version never matches.
        folders: where to look first; by default `search_folders`. The loader's cache comes last.

    Raises:
        InstallError: there is none; says how this kind of Python gets one.
    """
    for folder in search_folders() if folders is None else folders:
        if (folder / library).is_file():
            return folder
    if folders is None and (cached := _in_loader_cache(library)) is not None:
        return cached.parent
    raise InstallError(f"this Python has no shared library {library}, which Triton's stub loads", _remedy())


def _in_loader_cache(library: str) -> Path | None:
    for ldconfig in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if not Path(ldconfig).exists():
            continue
        listed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False, timeout=10)
        for line in listed.stdout.splitlines():
            name, _, path = line.strip().partition(" => ")
            if name.split(" ")[0] == library and Path(path).is_file():
                return Path(path)
    return None


def _remedy() -> str:
    minor = f"3.{sys.version_info.minor}"
    if ".pyenv" in sys.base_prefix:
        full = ".".join(str(part) for part in sys.version_info[:3])
        return (
            f"rebuild it: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install --force {full}, "
            "then make the virtual environment again"
        )
    if sys.base_prefix in ("/usr", "/usr/local"):
        return f"install it: apt install libpython{minor} (Fedora: dnf install python{minor}-libs)"
    return (
        f"use a Python built with --enable-shared, such as the system's (apt install python{minor} "
        f"libpython{minor}) or one from uv or conda"
    )
