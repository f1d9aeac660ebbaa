"""Keeps one tritonserver serving: starts it, proves it with a canary, restarts it, drains it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from naiad.server import preflight
from naiad.server.canary import CanaryWatch, Probe, text_probe
from naiad.server.command import triton_command, triton_environment
from naiad.server.config import ServeConfig
from naiad.server.drain import DrainLimits, drain, wait_for_exit
from naiad.server.endpoints import Endpoints
from naiad.server.errors import StartError
from naiad.server.journal import Journal
from naiad.server.output import OutputPump
from naiad.server.processes import StubWatch, TritonProcess
from naiad.server.restarts import RestartHistory
from naiad.server.shared_memory import region_prefix, sweep
from naiad.server.state import Phase, ServerState
from naiad.server.tritonserver import TritonInstallation, locate_or_install

__all__ = ["Supervisor"]

_STOP_DURING_START_S = 3.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why the server cannot go on."""

    reason: str


class Supervisor:
    """One supervised server; `run` blocks until it has ended."""

    def __init__(
        self,
        config: ServeConfig,
        *,
        installation: TritonInstallation | None = None,
        probe: Probe | None = None,
        console: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare; nothing starts.

        Args:
            config: what to serve.
            installation: the tritonserver to use; None: find or install one.
            probe: the canary request; None: text through `config.canary.model`.
            console: gets the lines of tritonserver's output that matter.
        """
        self._config = config
        self._installation = installation
        self._probe = probe
        self._prefix = region_prefix(config.repository_prefix, config.http_port)
        self._endpoints = Endpoints(config.local_address, config.http_port, config.metrics_port)
        self._pump = OutputPump(config.log_path, console, verbose=config.verbose)
        self._stops = 0
        self._was_ready = False
        self._journal = Journal(config)

    @property
    def state(self) -> ServerState | None:
        """The state last written to the state file; None before `run`."""
        return self._journal.state

    def request_stop(self) -> None:
        """Drain and end, as SIGTERM does; a second call ends at once. Safe in signal handlers."""
        # No lock and no event: a handler may interrupt code that holds them.
        self._stops += 1

    def run(self) -> int:
        """Serve until asked to stop; SIGTERM and SIGINT ask when this is the main thread.

        Returns:
            0 after a drain that cut no request, else 1.

        Raises:
            InstallError, PreflightError: nothing was started.
            StartError: it did not become ready, or kept failing; all processes are gone.
        """
        with self._signals():
            preflight.check(self._config)
            installation = self._installation or locate_or_install(self._config.artifacts, _log.info)
            self._journal.enter(Phase.STARTING, "starting tritonserver")
            sweep(self._config.repository_prefix)
            try:
                status = self._supervise(installation)
            except BaseException as error:
                reason = str(error) if isinstance(error, StartError) else repr(error)
                self._journal.enter(Phase.STOPPED, " ".join(reason.split()))
                raise
            finally:
                self._pump.close()
            self._journal.enter(
                Phase.STOPPED, "drained" if status == 0 else "stopped before all requests had ended"
            )
            return status

    def _supervise(self, installation: TritonInstallation) -> int:
        history = RestartHistory(self._config.restart)
        while True:
            ending = self._serve_once(installation)
            if isinstance(ending, int):
                return ending
            if not self._was_ready:
                raise StartError(
                    f"the server did not start: {ending.reason}", f"see {self._config.log_path.absolute()}"
                )
            pause_s = history.next_pause_s(time.monotonic())
            if pause_s is None:
                policy = self._config.restart
                raise StartError(
                    f"giving up: more than {policy.max_restarts} restarts within {policy.window_s:g} s; "
                    f"the last fault: {ending.reason}",
                    f"see {self._config.log_path.absolute()}, mend the cause and start again",
                )
            self._journal.restarts += 1
            number = self._journal.restarts
            self._journal.enter(Phase.STARTING, f"restart {number} in {pause_s:g} s after: {ending.reason}")
            resume_s = time.monotonic() + pause_s
            while time.monotonic() < resume_s:
                if self._stops:
                    return 0
                time.sleep(self._config.poll_s)

    def _serve_once(self, installation: TritonInstallation) -> _Fault | int:
        """Run one tritonserver until it fails (a fault) or was asked to stop (an exit status)."""
        config = self._config
        config.drain_path.unlink(missing_ok=True)
        command = triton_command(config, installation, self._prefix)
        environment = triton_environment(config, installation, os.environ)
        server = TritonProcess.start(command, environment, self._prefix)
        self._pump.start(server.output, " ".join(command))
        self._journal.enter(Phase.STARTING, "loading models", server.pid)
        canary = self._canary()
        stubs = StubWatch(server.pid)
        try:
            fault = self._until_ready(server, stubs, canary) or self._until_fault(server, stubs, canary)
            if fault is not None:
                self._abandon(server, fault)
                return fault
            return self._stop(server)
        finally:
            if canary is not None:
                canary.close()
            server.kill()
            self._pump.close()
            config.drain_path.unlink(missing_ok=True)
            sweep(config.repository_prefix)

    def _canary(self) -> CanaryWatch | None:
        policy = self._config.canary
        if policy is None:
            return None
        target = f"{self._config.local_address}:{self._config.grpc_port}"
        return CanaryWatch(self._probe or text_probe(target, policy), policy, self._endpoints.progress)

    def _until_ready(
        self, server: TritonProcess, stubs: StubWatch, canary: CanaryWatch | None
    ) -> _Fault | None:
        """Wait for Triton's readiness and then for a canary's answer; None: ready, or asked to stop."""
        started_s = time.monotonic()
        deadline_s = started_s + self._config.start_limit_s
        triton_ready = False
        waiting_for = "models still load"
        while not self._stops:
            if server.exit_status is not None:
                return _Fault(self._exit_reason(server))
            if not triton_ready and self._endpoints.ready():
                triton_ready = True
                stubs.scan()
                if canary is not None:
                    canary.start()
                    deadline_s = time.monotonic() + self._config.canary_start_limit_s
            if triton_ready:
                if fault := self._dead_stub(stubs):
                    return fault
                if canary is None or canary.answered.is_set():
                    self._was_ready = True
                    self._journal.enter(Phase.READY, self._address(time.monotonic() - started_s), server.pid)
                    return None
                if canary.last.reason not in ("", waiting_for):
                    waiting_for = canary.last.reason
                    self._journal.enter(Phase.STARTING, f"canary: {waiting_for}", server.pid)
            if time.monotonic() > deadline_s:
                return _Fault(f"not ready after {time.monotonic() - started_s:.0f} s: {waiting_for}")
            time.sleep(self._config.poll_s)
        return None

    def _until_fault(
        self, server: TritonProcess, stubs: StubWatch, canary: CanaryWatch | None
    ) -> _Fault | None:
        """Watch until something fails; None: asked to stop."""
        while not self._stops:
            if server.exit_status is not None:
                return _Fault(self._exit_reason(server))
            if fault := self._dead_stub(stubs):
                return fault
            if canary is not None:
                if canary.dead:
                    return _Fault(f"{canary.failures} canaries in a row failed: {canary.last.reason}")
                self._show(canary, server)
            time.sleep(self._config.poll_s)
        return None

    def _show(self, canary: CanaryWatch, server: TritonProcess) -> None:
        """Let the state follow the canary."""
        phase = Phase.DEGRADED if canary.failures else Phase.READY
        if self._journal.phase is not phase:
            reason = f"canary failed: {canary.last.reason}" if canary.failures else "the canary answers again"
            self._journal.enter(phase, reason, server.pid)

    def _dead_stub(self, stubs: StubWatch) -> _Fault | None:
        # An unload over the API ends a stub as well; then Triton no longer calls the model ready.
        dead = [stub for stub in stubs.dead() if not self._endpoints.unloaded(stub.model)]
        if not dead:
            return None
        names = ", ".join(sorted({stub.model for stub in dead}))
        return _Fault(f"process {dead[0].process.pid} of model {names} died")

    def _abandon(self, server: TritonProcess, fault: _Fault) -> None:
        """Turn readiness false at once, give live requests a moment, and let the caller kill the rest."""
        self._journal.enter(Phase.DEGRADED, fault.reason, server.pid)
        server.terminate()
        wait_for_exit(server, self._config.fault_drain_s, lambda: self._stops > 0)

    def _stop(self, server: TritonProcess) -> int:
        config = self._config
        aborted_at = 2

        def aborted() -> bool:
            return self._stops >= aborted_at

        if self._journal.phase is Phase.STARTING:
            self._journal.enter(Phase.DRAINING, "asked to stop while starting", server.pid)
            server.terminate()
            wait_for_exit(server, _STOP_DURING_START_S, aborted)
            return 0
        self._journal.enter(Phase.DRAINING, f"asked to stop; {config.drain_limit_s:g} s at most", server.pid)
        limits = DrainLimits(config.drain_limit_s, config.settle_s)
        clean = drain(server, self._endpoints, config.drain_path, limits, aborted)
        return 0 if clean else 1

    def _address(self, seconds: float) -> str:
        config = self._config
        return (
            f"ready after {seconds:.1f} s: http {config.address}:{config.http_port}, "
            f"grpc {config.grpc_port}, metrics {config.metrics_port}"
        )

    def _exit_reason(self, server: TritonProcess) -> str:
        status = server.exit_status or 0
        # Its stubs hold the output open, and the cause may be among the last lines.
        server.kill()
        self._pump.close()
        how = (
            f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
        )
        cause = "; ".join(self._pump.errors[-3:])
        return f"tritonserver {how}{f': {cause}' if cause else ''}"

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:
            self.request_stop()

        previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
