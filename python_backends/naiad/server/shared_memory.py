"""Leftovers of servers that died hard: shared memory regions and orphaned stub processes.

A SIGKILL of tritonserver leaves its Python stubs running and its regions in /dev/shm. Every region of ours
is named ``naiad_<repository key>_<supervisor pid>_<http port>_<uuid>``, and a stub has the name of its region
and the pid of its tritonserver on its command line, so both can be told from another server's.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Stub", "Swept", "find_stubs", "region_prefix", "sweep"]

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's name for it, nothing is created here
STUB_NAME = "triton_python_backend_stub"
_ORPHAN_WAIT_S = 3.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stub:
    """One process of Triton's Python backend: one instance of one model."""

    process: psutil.Process
    model: str
    region: str
    server_pid: int

    @property
    def orphaned(self) -> bool:
        """Whether the tritonserver that started it is no longer its parent."""
        try:
            return self.process.ppid() != self.server_pid
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    regions: tuple[str, ...] = ()
    stubs: tuple[int, ...] = ()


def region_prefix(repository_prefix: str, http_port: int) -> str:
    """Prefix of the regions of the server at `http_port` that this process supervises."""
    return f"{repository_prefix}{os.getpid()}_{http_port}_"


def find_stubs(processes: Iterable[psutil.Process] | None = None) -> Iterator[Stub]:
    """Yield every stub among `processes`, by default among all that this user may see."""
    for process in psutil.process_iter() if processes is None else processes:
        try:
            stub = _as_stub(process, process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if stub is not None:
            yield stub


def _as_stub(process: psutil.Process, command: list[str]) -> Stub | None:
    # stub, <repository>/<model>/<version>/model.py, region, default and growth bytes, tritonserver's pid
    if len(command) < 6 or Path(command[0]).name != STUB_NAME or not command[5].isdigit():
        return None
    model_file = Path(command[1])
    model = model_file.parts[-3] if len(model_file.parts) >= 3 else str(model_file)
    return Stub(process, model, command[2], int(command[5]))


def sweep(repository_prefix: str, folder: Path = SHARED_MEMORY) -> Swept:
    """End orphaned stubs of this repository and remove its regions that no living process can want.

    A region stays when a process maps it or when the supervisor in its name lives (it may just be creating
    it); this process's own count as wanted only while mapped.
    """
    orphans = [s for s in find_stubs() if s.region.startswith(repository_prefix) and s.orphaned]
    for orphan in orphans:
        _log.warning("killing orphaned stub %d of model %s", orphan.process.pid, orphan.model)
        try:
            orphan.process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs([o.process for o in orphans], timeout=_ORPHAN_WAIT_S)
    ours = re.compile(re.escape(repository_prefix) + r"(\d+)_")
    found = [
        (path, match) for path in folder.glob(f"{repository_prefix}*") if (match := ours.match(path.name))
    ]
    candidates = [path for path, match in found if not _living_other(int(match[1]))]
    mapped = _mapped_files(folder) if candidates else frozenset()
    removed = tuple(path.name for path in candidates if path.name not in mapped and _remove(path))
    if removed:
        _log.info("removed %d shared memory regions of dead servers", len(removed))
    return Swept(removed, tuple(o.process.pid for o in orphans))


def _living_other(pid: int) -> bool:
    return pid != os.getpid() and psutil.pid_exists(pid)


def _mapped_files(folder: Path) -> frozenset[str]:
    """Names of the files of `folder` that any process maps or holds open, as far as this user may see."""
    names: set[str] = set()
    prefix = f"{folder.resolve()}/"
    for pid in psutil.pids():
        try:
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                _, found, rest = line.partition(prefix)
                if found:
                    names.add(rest.removesuffix(" (deleted)"))
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                target = os.readlink(descriptor)
                if target.startswith(prefix):
                    names.add(target.removeprefix(prefix))
        except OSError:  # gone meanwhile, or another user's: and its files cannot be removed by us either
            continue
    return frozenset(names)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:  # gone meanwhile, or another user's
        return False
    return True
