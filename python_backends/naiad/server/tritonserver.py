"""Finds a real tritonserver: the container's own, or the CPU one that NVIDIA's pytriton wheel carries.

The wheel's server is used from a copy below the artifacts folder, because the stub of the running Python must
lie beside the backend library, and site-packages is not ours to change.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from naiad.server import wheel
from naiad.server.errors import InstallError
from naiad.server.libpython import find_libpython, own_name, stub_library
from naiad.server.shared_memory import STUB_NAME

__all__ = ["TritonInstallation", "install", "installed_folder", "locate", "locate_or_install"]

_CONTAINER_BINARY = Path("/opt/tritonserver/bin/tritonserver")
_LIBRARIES = "nvidia_pytriton.libs"  # the stub looks for libraries here first (its RPATH)
_REQUIREMENT = "nvidia-pytriton==0.7.0"  # carries tritonserver 2.51
_SHA256 = "21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df"
_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
_GLIBC = (2, 35)
_NEEDED_BYTES = 400 << 20  # the wheel, pip's copy of it, and what is unpacked
_CONTAINER = (
    "run in NVIDIA's container instead (nvcr.io/nvidia/tritonserver), whose tritonserver is used as it is"
)

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """A tritonserver that can run this Python's models.

    Attributes:
        binary: the server.
        backends: its backend directory.
        caches: its response cache directory; None when it has none.
        library_folders: what LD_LIBRARY_PATH needs in front.
        python_folder: what PATH needs in front: the stub runs as the first `python3` on it.
    """

    binary: Path
    backends: Path
    caches: Path | None
    library_folders: tuple[Path, ...]
    python_folder: Path

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return `base` with what this installation needs."""
        added = dict(base)
        added["PATH"] = _joined((self.python_folder,), base.get("PATH", os.defpath))
        if self.library_folders:
            added["LD_LIBRARY_PATH"] = _joined(self.library_folders, base.get("LD_LIBRARY_PATH", ""))
        if sys.prefix != sys.base_prefix:
            added["VIRTUAL_ENV"] = sys.prefix
        # The stub would take another Python's standard library from it.
        added.pop("PYTHONHOME", None)
        return added


def locate(artifacts: Path) -> TritonInstallation:
    """Return the tritonserver to use: the container's, one on PATH, or the installed one below `artifacts`.

    Raises:
        InstallError: there is none (then `install` one), or the one there does not fit this Python.
    """
    found = shutil.which("tritonserver")
    for binary in (_CONTAINER_BINARY, Path(found) if found else None, _binary(installed_folder(artifacts))):
        if binary is not None and binary.is_file() and _stub(binary).is_file():
            return _checked(binary.resolve())
    raise InstallError(
        "no tritonserver here: none in /opt/tritonserver, on PATH or installed",
        "run `naiad serve`, which installs a CPU one (55 MB), or run in NVIDIA's Triton container",
    )


def install(artifacts: Path, progress: Report = lambda line: None) -> TritonInstallation:
    """Download and unpack the CPU tritonserver below `artifacts`, whole or not at all; reuse it if there.

    Args:
        artifacts: folder to install below.
        progress: told what happens, a line a step.

    Raises:
        InstallError: this machine or Python cannot run it, no network, or no space.
    """
    target = installed_folder(artifacts)
    if _stub(_binary(target)).is_file():
        return _checked(_binary(target).resolve())
    _check_machine()
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < _NEEDED_BYTES:
        raise InstallError(
            f"{target.parent} has {free >> 20} MiB free; to install takes {_NEEDED_BYTES >> 20} MiB",
            "free some space, or point --artifacts elsewhere",
        )
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as scratch:
        progress(f"downloading tritonserver ({_REQUIREMENT}, 55 MB, once)")
        fetched = wheel.download(_REQUIREMENT, _SHA256, Path(scratch))
        progress("unpacking tritonserver")
        draft = Path(scratch) / "tree"
        wheel.unpack(fetched, draft, _wanted)
        shutil.move(draft / _stub_member(), _stub(_binary(draft)))
        _link_own_libpython(draft)
        _checked(_binary(draft))
        _publish(draft, target)
    progress(f"installed {target}")
    return _checked(_binary(target).resolve())


def locate_or_install(artifacts: Path, progress: Report = lambda line: None) -> TritonInstallation:
    """Return `locate`'s answer, or install one when there is none at all."""
    found = shutil.which("tritonserver")
    if _CONTAINER_BINARY.is_file() or found:
        return locate(artifacts)
    return install(artifacts, progress)


def installed_folder(artifacts: Path) -> Path:
    """Return where `install` puts the server for the running Python."""
    version = _REQUIREMENT.partition("==")[2]
    return artifacts.absolute() / "tritonserver" / f"pytriton-{version}-python{_minor()}"


def _link_own_libpython(tree: Path) -> None:
    """Put the running Python's library where a stub has one bundled under a hashed name.

    The wheel brings Python 3.13's library along, from a build whose built-in modules differ from those of
    other builds: numpy then fails to import under Debian's Python ("could not import module datetime").
    """
    library = stub_library(_stub(_binary(tree)))
    own = own_name(library)
    if own != library:
        bundled = tree / _LIBRARIES / library
        bundled.unlink(missing_ok=True)
        bundled.symlink_to(find_libpython(own) / own)


def _publish(draft: Path, target: Path) -> None:
    try:
        draft.rename(target)
    except OSError:
        # Another process was faster: its tree is as good as ours.
        if not _stub(_binary(target)).is_file():
            raise


def _check_machine() -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise InstallError(f"no CPU tritonserver for {sys.platform} on {platform.machine()}", _CONTAINER)
    name, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".")[:2]) if version else (0, 0)
    if name != "glibc" or numbers < _GLIBC:
        raise InstallError(
            f"tritonserver needs glibc {_GLIBC[0]}.{_GLIBC[1]}; here is {name or 'another libc'} {version}",
            f"use Ubuntu 22.04, Debian 12 or newer, or {_CONTAINER}",
        )
    if _minor() not in _PYTHONS:
        raise InstallError(
            f"tritonserver has no Python stub for Python {_minor()}, only for {', '.join(_PYTHONS)}",
            f"make the virtual environment with one of them, for example python{_PYTHONS[-2]} -m venv",
        )


def _checked(binary: Path) -> TritonInstallation:
    """Describe the server at `binary` after checking that its stub can load this Python."""
    root = binary.parent.parent
    library = stub_library(_stub(binary))
    version = library.partition(".so")[0].rpartition(".")[2]
    if version != str(sys.version_info.minor):
        raise InstallError(
            f"the Python stub of {binary} is built for Python 3.{version}; this is Python {_minor()}",
            f"run naiad with Python 3.{version}, or take this tritonserver off PATH",
        )
    python_folder = Path(sys.executable).parent
    if not (python_folder / "python3").exists():
        raise InstallError(
            f"there is no `python3` beside {sys.executable}, and the stub would run another Python",
            "install Naiad in a virtual environment (python3 -m venv) and run it from there",
        )
    folders = (find_libpython(own_name(library)),)
    caches = root / "caches"
    return TritonInstallation(
        binary, root / "backends", caches if caches.is_dir() else None, folders, python_folder
    )


def _binary(folder: Path) -> Path:
    return folder / "pytriton" / "tritonserver" / "bin" / "tritonserver"


def _stub(binary: Path) -> Path:
    return binary.resolve().parent.parent / "backends" / "python" / STUB_NAME


def _stub_member() -> str:
    return f"pytriton/tritonserver/python_backend_stubs/{_minor()}/{STUB_NAME}"


def _wanted(name: str) -> bool:
    folders = (
        "pytriton/tritonserver/bin/",
        "pytriton/tritonserver/backends/",
        "pytriton/tritonserver/caches/",
    )
    return name.startswith((*folders, "nvidia_pytriton.libs/")) or name == _stub_member()


def _minor() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _joined(folders: tuple[Path, ...], rest: str) -> str:
    return os.pathsep.join([*(str(folder) for folder in folders), *([rest] if rest else [])])
