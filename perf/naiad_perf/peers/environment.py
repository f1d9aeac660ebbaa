"""Where the peers live: an environment of their own, pinned, with torch's CPU build where pip knows one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from naiad_build.tool_environment import ToolEnvironment
from naiad_perf.errors import InstallError

__all__ = ["PeersEnvironment", "peers_environment"]

_HERE = Path(__file__).parent
_NEEDED_BYTES = 2_500_000_000
_PYTHONS = (10, 14)


@dataclass(frozen=True, slots=True)
class PeersEnvironment(ToolEnvironment):
    """xllamacpp, transformers and torch.

    torch is one release with two builds. The CPU build is small, and pip finds it only where it is told of
    one. Elsewhere the index's own build is installed, which on Linux takes CUDA's libraries along: the same
    code for the processor, and gigabytes that nothing uses.
    """

    def _fill(self, report: Callable[[str], None]) -> None:
        self._pip_install("--no-deps", "-r", str(self.lock))
        try:
            self._pip_install("--no-deps", "-r", str(_HERE / "torch_cpu.lock"))
        except InstallError:
            report("pip knows no CPU build of torch")
        if not self._has_torch():
            report(
                "installing the index's own build of torch, on Linux with CUDA's libraries: about 3 GB to "
                "download (pip's setting find-links can name a folder with the CPU build)"
            )
            self._pip_install("--no-deps", "-r", str(_HERE / "torch.lock"))
        self._call(str(self.python), "-c", "import torch, transformers, xllamacpp")

    def _has_torch(self) -> bool:
        return any(self.home.glob("lib/python3*/site-packages/torch/__init__.py"))

    @property
    def _locks(self) -> tuple[Path, ...]:
        return self.lock, _HERE / "torch_cpu.lock", _HERE / "torch.lock"


def peers_environment(artifacts: Path) -> PeersEnvironment:
    """Return the environment below `artifacts`, installed or not."""
    return PeersEnvironment("peers", _HERE / "peers.lock", artifacts, _PYTHONS, _NEEDED_BYTES)
