"""perf_analyzer's installation and start: real apt, pip, dpkg and processes, all from local files."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from naiad_perf.cli import app
from naiad_perf.errors import InstallError
from naiad_perf.tools import newer_libraries, perf_analyzer
from naiad_perf.tools.newer_libraries import NewerRelease, fetch_libraries, loader_prefix, newer_release

LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
RELEASE = NewerRelease(present="oldname", codename="newname", packages=("libone", "libtwo"))
SAYS_ITS_ARGUMENTS = '#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "$@" > "$0.said"\nexit 7\n'

needs_apt = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("apt-get", "dpkg-deb", "gpg")),
    reason="a Debian tool is absent",
)


@pytest.fixture
def recent_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_analyzer, "_glibc", lambda: (2, 41))


@pytest.fixture
def old_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_analyzer, "_glibc", lambda: (2, 36))


def put_program(artifacts: Path, script: str = SAYS_ITS_ARGUMENTS) -> Path:
    program = artifacts / "perf_analyzer" / perf_analyzer.VERSION / "perf_analyzer"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    return program


def put_loader(libraries: Path) -> Path:
    loader = libraries / LOADER
    loader.parent.mkdir(parents=True)
    loader.write_text("")
    return loader


# --- finding and running -----------------------------------------------------------------------------------


def test_on_a_recent_system_the_program_is_run_straight(tmp_path: Path, recent_glibc: None) -> None:
    program = put_program(tmp_path)
    assert perf_analyzer.locate(tmp_path) == [str(program)]


def test_on_an_older_system_it_is_run_through_the_newer_loader(tmp_path: Path, old_glibc: None) -> None:
    program = put_program(tmp_path)
    loader = put_loader(tmp_path / "perf_analyzer" / "libraries")
    assert perf_analyzer.locate(tmp_path) == [
        str(loader), "--library-path", str(loader.parent), "--argv0", "perf_analyzer", str(program),
    ]  # fmt: skip


def test_without_the_newer_libraries_an_older_system_has_no_complete_installation(
    tmp_path: Path, old_glibc: None
) -> None:
    put_program(tmp_path)
    with pytest.raises(InstallError, match="not installed"):
        perf_analyzer.locate(tmp_path)


def test_arguments_and_exit_status_pass_through(tmp_path: Path, recent_glibc: None) -> None:
    program = put_program(tmp_path)
    assert perf_analyzer.run(["-m", "ensemble", "--streaming"], tmp_path) == 7
    assert Path(f"{program}.said").read_text() == "-m ensemble --streaming\n"


def test_the_command_passes_everything_after_two_dashes(tmp_path: Path, recent_glibc: None) -> None:
    program = put_program(tmp_path)
    result = CliRunner().invoke(
        app, ["perf-analyzer", "--artifacts", str(tmp_path), "--", "--help", "-m", "x"]
    )
    assert result.exit_code == 7
    assert Path(f"{program}.said").read_text() == "--help -m x\n"


def test_the_command_explains_a_failed_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_analyzer, "_glibc", lambda: None)
    result = CliRunner().invoke(app, ["perf-analyzer", "--artifacts", str(tmp_path)])
    assert result.exit_code == 1
    assert "Linux with glibc on x86-64" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_program_killed_by_a_signal_gives_the_shells_status(tmp_path: Path, recent_glibc: None) -> None:
    put_program(tmp_path, "#!/bin/sh\nkill -KILL $$\n")
    assert perf_analyzer.run([], tmp_path) == 128 + signal.SIGKILL


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_lets_the_program_finish_its_report(tmp_path: Path, sent: signal.Signals) -> None:
    put_program(
        tmp_path,
        "#!/bin/sh\ntrap 'echo report; exit 5' INT TERM\necho started\nwhile :; do sleep 0.05; done\n",
    )
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from naiad_perf.tools import perf_analyzer
        perf_analyzer._glibc = lambda: (2, 41)
        sys.exit(perf_analyzer.run([], Path(sys.argv[1])))
    """)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "started\n"
            if sent is signal.SIGINT:  # a terminal sends it to the whole group
                os.killpg(process.pid, sent)
            else:
                process.send_signal(sent)
            assert process.stdout.readline() == "report\n"
            assert process.wait(timeout=20) == 5
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_the_systems_own_libraries_are_not_preloaded_into_another_c_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old_glibc: None
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libjemalloc.so.2")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    assert not {"LD_PRELOAD", "LD_LIBRARY_PATH"} & perf_analyzer.environment().keys()


# --- installing --------------------------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a script for a binary, which pip finds in a folder and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    name = f"perf_analyzer-{perf_analyzer.VERSION}"
    path = folder / f"{name}-py3-none-{perf_analyzer._PLATFORM}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(perf_analyzer._BINARY_IN_WHEEL, SAYS_ITS_ARGUMENTS)
        archive.writestr(
            f"{name}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: perf-analyzer\nVersion: {perf_analyzer.VERSION}\n",
        )
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(perf_analyzer, "_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Puts a script in pip's place; the folders it was asked to fill."""
    folders: list[Path] = []
    second = threading.Event()

    def fetch(folder: Path, report: Any) -> None:
        folders.append(folder)
        if len(folders) > 1:
            second.set()
        second.wait(0.1)  # lets another installation in, were there no lock
        (folder / "perf_analyzer").write_text(SAYS_ITS_ARGUMENTS)
        (folder / "perf_analyzer").chmod(0o755)

    monkeypatch.setattr(perf_analyzer, "_fetch_binary", fetch)
    return folders


def test_it_is_fetched_once_and_found_at_once_afterwards(
    tmp_path: Path, wheel: Path, recent_glibc: None
) -> None:
    lines: list[str] = []
    perf_analyzer.install(tmp_path / "a", lines.append)
    assert lines == [f"downloading perf_analyzer {perf_analyzer.VERSION}"]
    wheel.unlink()
    assert perf_analyzer.run(["x"], tmp_path / "a", lines.append) == 7
    assert len(lines) == 1


def test_a_wheel_with_another_digest_is_refused_and_leaves_nothing(
    tmp_path: Path, wheel: Path, recent_glibc: None
) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("added", "")
    with pytest.raises(InstallError, match=r"(?s)pip could not download.*[Hh]ash"):
        perf_analyzer.install(tmp_path / "a")
    assert [path.name for path in (tmp_path / "a" / "perf_analyzer").iterdir()] == [".lock"]


def test_what_a_killed_installation_left_is_cleared_away(
    tmp_path: Path, fetched: list[Path], recent_glibc: None
) -> None:
    home = tmp_path / "a" / "perf_analyzer"
    (home / ".making-dead").mkdir(parents=True)
    perf_analyzer.install(tmp_path / "a")
    assert sorted(path.name for path in home.iterdir()) == [".lock", perf_analyzer.VERSION]


def test_two_installations_at_a_time_fetch_it_once(
    tmp_path: Path, fetched: list[Path], recent_glibc: None
) -> None:
    threads = [threading.Thread(target=perf_analyzer.install, args=(tmp_path / "a",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1
    assert perf_analyzer.is_installed(tmp_path / "a")


def test_a_full_disk_is_named_before_anything_is_fetched(
    tmp_path: Path, fetched: list[Path], recent_glibc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perf_analyzer, "_NEEDED_BYTES", 10**18)
    with pytest.raises(InstallError, match="MB of free disk"):
        perf_analyzer.install(tmp_path / "a")
    assert fetched == []


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, fetched: list[Path], recent_glibc: None
) -> None:
    (tmp_path / "a").write_text("a file, not a folder")
    with pytest.raises(InstallError, match="could not be stored"):
        perf_analyzer.install(tmp_path / "a")


def test_a_program_that_does_not_start_is_reported(
    tmp_path: Path, fetched: list[Path], recent_glibc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(folder: Path, report: Any) -> None:
        (folder / "perf_analyzer").write_text("#!/bin/sh\necho 'libssl.so.3: cannot open' >&2\nexit 127\n")
        (folder / "perf_analyzer").chmod(0o755)

    monkeypatch.setattr(perf_analyzer, "_fetch_binary", fetch)
    with pytest.raises(InstallError, match=r"does not start:\nlibssl\.so\.3"):
        perf_analyzer.install(tmp_path / "a")


def test_a_system_without_glibc_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_analyzer, "_glibc", lambda: None)
    with pytest.raises(InstallError, match="glibc"):
        perf_analyzer.install(tmp_path)


# --- the newer libraries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "present", "newer"), [("debian", "bookworm", "trixie"), ("ubuntu", "jammy", "noble")]
)
def test_the_newer_release_follows_the_distribution(distribution: str, present: str, newer: str) -> None:
    release = newer_release({"ID": distribution, "VERSION_CODENAME": present})
    assert (release.present, release.codename) == (present, newer)
    assert "libssl3t64" in release.packages


@pytest.mark.parametrize("facts", [{"ID": "fedora", "VERSION_CODENAME": ""}, {"ID": "debian"}, {}])
def test_other_systems_are_told_what_they_need(facts: dict[str, str]) -> None:
    with pytest.raises(InstallError, match="Debian and Ubuntu only"):
        newer_release(facts)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("sources.list", "deb http://m/debian oldname main contrib\n", "URIs: http://m/debian\n"),
        (
            "sources.list",
            "# deb http://no/debian oldname main\ndeb-src http://no/s oldname main\n"
            "deb cdrom:[Disc]/ oldname main\ndeb http://no/sec oldname-security main\n"
            "deb [arch=amd64 signed-by=/k.gpg,/l.gpg] http://m/debian oldname contrib main # here\n",
            "URIs: http://m/debian\nSigned-By: /k.gpg /l.gpg\n",
        ),
        (
            "sources.list.d/debian.sources",
            "Types: deb deb-src\n# note\nURIs: http://m/debian\nSuites: oldname oldname-updates\n"
            "Components: main\nSigned-By: /k.gpg\n",
            "URIs: http://m/debian\nSigned-By: /k.gpg\n",
        ),
        (
            "sources.list.d/debian.sources",
            "Types: deb\nURIs: http://no/\nSuites: oldname\nComponents: main\nEnabled: no\n\n"
            "Types: deb\nURIs: http://m/debian\nSuites: oldname\nComponents: main\n"
            "Signed-By:\n -----BEGIN PGP\n .\n abc\n",
            "URIs: http://m/debian\nSigned-By: \n -----BEGIN PGP\n .\n abc\n",
        ),
    ],
    ids=["one line", "one line with options", "deb822", "deb822 with the key inside"],
)
def test_the_mirror_and_its_key_come_from_this_machines_sources(
    tmp_path: Path, file: str, text: str, expected: str
) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / file).write_text(text)
    source = newer_libraries._newer_source(RELEASE, tmp_path)
    assert source.replace("Types: deb\n", "").replace("Suites: newname\nComponents: main\n", "") == expected


def test_a_machine_without_a_source_of_its_own_release_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://m/ other main\n")
    with pytest.raises(InstallError, match="no package source"):
        newer_libraries._newer_source(RELEASE, tmp_path)


def test_settings_that_relax_verification_are_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    config = tmp_path / "bin" / "apt-config"
    config.write_text(
        '#!/bin/sh\ncat <<\'X\'\nAcquire::AllowInsecureRepositories "1";\nAcquire::http::Proxy "http://p";\nX\n'
    )
    config.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    written = newer_libraries._write_settings(tmp_path / "apt", "").read_text()
    assert 'Acquire::http::Proxy "http://p";' in written
    assert "AllowInsecure" not in written


def test_a_system_without_apt_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "sources.list").write_text("deb http://m/ oldname main\n")
    with pytest.raises(InstallError, match="apt-get is not installed"):
        fetch_libraries(RELEASE, tmp_path, list[str]().append, tmp_path)


def test_a_loader_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match="ld-linux-x86-64"):
        loader_prefix(tmp_path)


class Mirror:
    """A package mirror in a folder, and the apt settings that name it."""

    def __init__(self, root: Path, key_home: Path | None) -> None:
        self.settings, suite = root / "etc", root / "mirror" / "dists" / "newname"
        index = suite / "main" / "binary-amd64"
        for folder in (self.settings / "sources.list.d", index, root / "mirror" / "pool"):
            folder.mkdir(parents=True)
        stanzas = [self._package(root, name) for name in RELEASE.packages]
        (index / "Packages").write_text("\n".join(stanzas))
        (index / "Packages.gz").write_bytes(gzip.compress((index / "Packages").read_bytes()))
        release = (
            "Origin: test\nSuite: newname\nCodename: newname\nArchitectures: amd64\nComponents: main\n"
            f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S UTC', time.gmtime())}\nSHA256:\n"
        )
        for file in (index / "Packages", index / "Packages.gz"):
            content = file.read_bytes()
            release += (
                f" {hashlib.sha256(content).hexdigest()} {len(content)} main/binary-amd64/{file.name}\n"
            )
        (suite / "Release").write_text(release)
        key = ""
        if key_home is not None:
            gpg = ["gpg", "--homedir", str(key_home), "--batch", "--quiet"]
            run = {"check": True, "capture_output": True}
            subprocess.run([*gpg, "--clearsign", "-o", suite / "InRelease", suite / "Release"], **run)  # type: ignore[call-overload]
            public = subprocess.run([*gpg, "--export"], **run).stdout  # type: ignore[call-overload]
            (root / "key.gpg").write_bytes(public)
            key = f"[signed-by={root / 'key.gpg'}] "
        (self.settings / "sources.list").write_text(f"deb {key}file:{root}/mirror oldname main\n")

    @staticmethod
    def _package(root: Path, name: str) -> str:
        tree = root / name
        (tree / "DEBIAN").mkdir(parents=True)
        control = f"Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: T <t@t>\nDescription: t\n"
        (tree / "DEBIAN" / "control").write_text(control)
        put_loader(tree) if name == "libone" else (tree / "usr").mkdir()
        (tree / "usr" / name).write_text(name)
        package = root / "mirror" / "pool" / f"{name}.deb"
        subprocess.run(["dpkg-deb", "-b", tree, package], check=True, capture_output=True)
        digest, size = hashlib.sha256(package.read_bytes()).hexdigest(), package.stat().st_size
        return f"{control}Filename: pool/{name}.deb\nSize: {size}\nSHA256: {digest}\n"


@pytest.fixture(scope="module")
def key_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    make = ["--batch", "--passphrase", "", "--quick-gen-key", "t@t", "ed25519", "sign", "never"]
    subprocess.run(["gpg", "--homedir", home, *make], check=True, capture_output=True)
    yield home
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


@needs_apt
def test_apt_fetches_verifies_and_unpacks_every_package(tmp_path: Path, key_home: Path) -> None:
    mirror, target, lines = Mirror(tmp_path, key_home), tmp_path / "target", list[str]()
    target.mkdir()
    fetch_libraries(RELEASE, target, lines.append, mirror.settings)
    assert (target / "usr" / "libtwo").read_text() == "libtwo"
    assert loader_prefix(target)[0] == str(target / LOADER)
    assert [path.name for path in target.iterdir()] == ["usr"]
    assert lines == ["reading the package list of newname", "downloading libone, libtwo", "unpacking"]


@needs_apt
def test_an_unsigned_mirror_is_refused(tmp_path: Path) -> None:
    mirror, target = Mirror(tmp_path, None), tmp_path / "target"
    target.mkdir()
    with pytest.raises(InstallError, match=r"(?s)apt-get update.*not signed"):
        fetch_libraries(RELEASE, target, list[str]().append, mirror.settings)


@needs_apt
def test_a_package_that_was_changed_on_the_mirror_is_refused(tmp_path: Path, key_home: Path) -> None:
    mirror, target = Mirror(tmp_path, key_home), tmp_path / "target"
    target.mkdir()
    package = tmp_path / "mirror" / "pool" / "libtwo.deb"
    package.write_bytes(package.read_bytes()[:-1] + b"!")
    with pytest.raises(InstallError, match=r"(?s)apt-get download.*(Hash|unexpected size)"):
        fetch_libraries(RELEASE, target, list[str]().append, mirror.settings)
    assert not (target / "usr").exists()


@needs_apt
def test_a_mirror_signed_with_an_unknown_key_says_which_keyring_to_upgrade(
    tmp_path: Path, key_home: Path
) -> None:
    mirror, target = Mirror(tmp_path, key_home), tmp_path / "target"
    target.mkdir()
    system = next(Path("/usr/share/keyrings").glob("debian-archive-*.gpg"), None)
    if system is None:
        pytest.skip("no other keyring here")
    shutil.copy(system, tmp_path / "key.gpg")
    with pytest.raises(InstallError, match="keyring lacks the newer release's key"):
        fetch_libraries(RELEASE, target, list[str]().append, mirror.settings)


@needs_apt
def test_a_mirror_that_is_gone_is_reported(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://127.0.0.1:9/debian oldname main\n")
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(InstallError, match="mirror cannot be reached"):
        fetch_libraries(RELEASE, target, list[str]().append, tmp_path)
