"""The C library of the next Debian or Ubuntu, unpacked beside this system's own, for one program's use.

The system is left alone: apt runs with private state, cache and configuration, as the user who called, and
takes the mirror, its signing key and its proxy from this machine's own settings. Signatures are verified as
always; settings that relax this are not taken over.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from naiad_perf.errors import InstallError

__all__ = ["NewerRelease", "fetch_libraries", "loader_prefix", "newer_release"]

_LOADER = "ld-linux-x86-64.so.2"
_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
_TIMEOUT_S = 600
_NOT_TAKEN_OVER = re.compile(r"Acquire::(Allow|IndexTargets|Languages|cdrom)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NewerRelease:
    """A release of this machine's distribution whose C library is new enough.

    Attributes:
        present: codename of the release installed here.
        codename: codename of the newer release.
        packages: the binary packages with the libraries.
    """

    present: str
    codename: str
    packages: tuple[str, ...]


_PACKAGES = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libssl3t64", "libzstd1")
_NEWER_CODENAME = {"debian": "trixie", "ubuntu": "noble"}


def newer_release(os_release: Mapping[str, str] | None = None) -> NewerRelease:
    """Return the newer release for this machine, described by ``/etc/os-release`` (or by `os_release`).

    Raises:
        InstallError: neither Debian nor Ubuntu.
    """
    try:
        facts = platform.freedesktop_os_release() if os_release is None else os_release
    except OSError:
        facts = {}
    distribution, present = facts.get("ID", "unknown"), facts.get("VERSION_CODENAME", "")
    if distribution not in _NEWER_CODENAME or not present:
        raise InstallError(
            "perf_analyzer needs glibc 2.38. Where the system's own is older, it can be fetched for Debian "
            f"and Ubuntu only, and this is {distribution!r}: measure from a newer system or a container"
        )
    return NewerRelease(present, _NEWER_CODENAME[distribution], _PACKAGES)


def loader_prefix(libraries: Path) -> list[str]:
    """Return the start of a command line that runs a program with the C library in `libraries`."""
    folders = [libraries / folder for folder in _LIBRARY_FOLDERS if (libraries / folder).is_dir()]
    loaders = [folder / _LOADER for folder in folders if (folder / _LOADER).exists()]
    if not loaders:
        raise InstallError(f"{libraries} holds no {_LOADER}: delete that folder and try again")
    return [str(loaders[0]), "--library-path", ":".join(map(str, folders))]


def fetch_libraries(
    release: NewerRelease, target: Path, report: Callable[[str], None], apt_settings: Path = Path("/etc/apt")
) -> None:
    """Download the packages of `release` and unpack them into the existing folder `target`.

    Args:
        release: what to fetch.
        target: where ``usr/`` will appear; apt's private files go to ``apt/`` in it and are removed.
        report: called with a line at the start of each step.
        apt_settings: where this machine's package sources are described.

    Raises:
        InstallError: no apt, no usable source, no network, a bad signature or a full disk.
    """
    for tool in ("apt-get", "apt-config", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise InstallError(f"{tool} is not installed, so the newer libraries cannot be fetched")
    source = _newer_source(release, apt_settings)
    private = target.absolute() / "apt"
    environment = {**os.environ, "APT_CONFIG": str(_write_settings(private, source)), "LC_ALL": "C.UTF-8"}
    report(f"reading the package list of {release.codename}")
    _run(["apt-get", "update", "-q"], environment, private)
    report(f"downloading {', '.join(release.packages)}")
    _run(["apt-get", "download", "-q", *release.packages], environment, private)
    report("unpacking")
    for package in sorted(private.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(target)], environment, private)
    shutil.rmtree(private)
    loader_prefix(target)


def _newer_source(release: NewerRelease, apt_settings: Path) -> str:
    """Return this machine's source of ``main`` as a deb822 stanza, with the newer codename."""
    for fields in _sources(apt_settings):
        mirrors = [uri for uri in fields["uris"].split() if not uri.startswith("cdrom:")]
        if (
            mirrors
            and "deb" in fields["types"].split()
            and release.present in fields["suites"].split()
            and "main" in fields["components"].split()
        ):
            key = f"Signed-By: {fields['signed-by']}\n" if fields.get("signed-by") else ""
            mirror = " ".join(mirrors)
            return f"Types: deb\nURIs: {mirror}\nSuites: {release.codename}\nComponents: main\n{key}"
    raise InstallError(
        f"no package source in {apt_settings} offers 'main' of {release.present}, so no mirror is known to "
        f"fetch the libraries of {release.codename} from: add one, as for any installation with apt"
    )


def _sources(apt_settings: Path) -> Iterator[dict[str, str]]:
    """Yield every enabled source in either format, as deb822 fields with lower-case names."""
    files = [apt_settings / "sources.list", *sorted((apt_settings / "sources.list.d").glob("*"))]
    for file in files:
        if file.suffix not in (".list", ".sources") or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        parse = _one_line_sources if file.suffix == ".list" else _deb822_sources
        yield from parse(text)


def _one_line_sources(text: str) -> Iterator[dict[str, str]]:
    line_form = re.compile(r"(deb)\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+(.*)")
    for line in text.splitlines():
        if found := line_form.fullmatch(line.split("#")[0].strip()):
            kind, options, mirror, suite, components = found.groups()
            signed_by = re.search(r"signed-by=(\S+)", options or "", re.IGNORECASE)
            fields = {"types": kind, "uris": mirror, "suites": suite, "components": components}
            yield {**fields, "signed-by": signed_by.group(1).replace(",", " ") if signed_by else ""}


def _deb822_sources(text: str) -> Iterator[dict[str, str]]:
    required = {"types", "uris", "suites", "components"}
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", lines):
        pairs = re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t]+.*)*)", stanza, re.MULTILINE)
        fields = {name.lower(): value for name, value in pairs}
        if required <= fields.keys() and fields.get("enabled", "yes").strip().lower() not in ("no", "false"):
            yield fields


def _write_settings(private: Path, source: str) -> Path:
    """Write apt's private folders and configuration; return the configuration's path."""
    for folder in ("lists/partial", "cache/archives/partial", "none"):
        (private / folder).mkdir(parents=True)
    (private / "status").touch()
    (private / "newer.sources").write_text(source, encoding="utf-8")
    dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=False)
    transport = [line for line in dump.stdout.splitlines() if not _NOT_TAKEN_OVER.match(line)]
    settings = {
        "Dir::State": private,
        "Dir::State::lists": private / "lists",
        "Dir::State::status": private / "status",
        "Dir::Cache": private / "cache",
        "Dir::Etc::main": "/dev/null",
        "Dir::Etc::parts": private / "none",  # hooks that refresh the system's own caches live there
        "Dir::Etc::sourcelist": private / "newer.sources",
        "Dir::Etc::sourceparts": private / "none",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": private / "none",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",  # called by root, it would drop to a user who may not write here
        "APT::Update::Error-Mode": "any",  # a list that cannot be fetched or verified is an error
        "Acquire::Languages": "none",
        "Acquire::Retries": 2,
    }
    lines = [*transport, *(f'{name} "{value}";' for name, value in settings.items())]
    path = private / "apt.conf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _run(command: list[str], environment: Mapping[str, str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False,
            timeout=_TIMEOUT_S, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{' '.join(command[:2])} took longer than {_TIMEOUT_S} s") from error
    if done.returncode:
        raise InstallError(_explain(command, done.stderr))


def _explain(command: list[str], output: str) -> str:
    """Return the last lines of a failed command, with what to do about the usual causes."""
    causes = {
        r"NO_PUBKEY|public key is not available": "this machine's keyring lacks the newer release's key; "
        "upgrade its package debian-archive-keyring (or ubuntu-keyring) and try again",
        r"No space left": "the disk is full; free some space and try again",
        r"resolv|onnect|Network|timed out": "the package mirror cannot be reached; check network and proxy",
    }
    advice = next(
        (text for pattern, text in causes.items() if re.search(pattern, output)), "its output says:"
    )
    told = "\n".join(output.strip().splitlines()[-6:])
    return f"'{' '.join(command[:2])}' failed: {advice}\n{told}"
