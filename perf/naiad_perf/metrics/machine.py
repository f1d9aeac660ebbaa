"""What the client, the server and its machine spent. All of it includes warm-up: nobody counts that apart."""

from __future__ import annotations

from naiad_perf.metrics.base import CORES, MIB, MILLISECONDS, SHARE, Better, RunMetric
from naiad_perf.metrics.slos import Slos
from naiad_perf.records import Run

__all__ = [
    "ClientCpuShare",
    "EngineQueueTime",
    "EngineTime",
    "KvShare",
    "ServerComputeTime",
    "ServerCores",
    "ServerMemory",
    "ServerQueueTime",
]


class ClientCpuShare(RunMetric):
    """Processor time of the load generator, as a share of its machine: near 100 % it measures itself.

    Formula: `client_cpu_s / (wall_s * cores)`, warm-up included.
    """

    name = "client_cpu_share"
    header = "Client CPU"
    unit = SHARE
    better = Better.NEITHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return a share from 0 to 1."""
        facts = run.facts
        available_s = facts.wall_s * facts.cores
        return None if facts.client_cpu_s is None or not available_s else facts.client_cpu_s / available_s


class ServerCores(RunMetric):
    """Processors the server's processes kept busy, on average.

    Formula: `server cpu_s / wall_s`, warm-up included.
    """

    name = "server_cores"
    header = "Server CPU"
    unit = CORES
    better = Better.NEITHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return processors."""
        cpu_s = run.facts.server.cpu_s
        return None if cpu_s is None or not run.facts.wall_s else cpu_s / run.facts.wall_s


class ServerQueueTime(RunMetric):
    """Mean time of a request in Triton's queue, from Triton's statistics, warm-up included.

    Formula: `queue_ns / successful requests`, both as the server counted.
    """

    name = "server_queue_ms"
    header = "Server queue"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return nanoseconds a request."""
        return _per_server_request(run, run.facts.server.queue_ns)


class ServerComputeTime(RunMetric):
    """Mean time of a request in the model, from Triton's statistics, warm-up included.

    Formula: `compute_ns / successful requests`, both as the server counted. Undefined for streaming models of
    Triton's Python backend, of which Triton counts only the handing over; engine time is what they have.
    """

    name = "server_compute_ms"
    header = "Server compute"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return nanoseconds a request."""
        return _per_server_request(run, run.facts.server.compute_ns)


class EngineQueueTime(RunMetric):
    """Mean time of a request in the engine before its first step, as Naiad counts, warm-up included.

    Formula: `engine_queue_ns / successful requests`, both as the server counted.
    """

    name = "engine_queue_ms"
    header = "Engine queue"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return nanoseconds a request."""
        return _per_server_request(run, run.facts.server.engine_queue_ns)


class EngineTime(RunMetric):
    """Mean time of a request in the engine, from its arrival to its last token, warm-up included.

    Formula: `engine_ns / successful requests`, both as the server counted.
    """

    name = "engine_ms"
    header = "Engine time"
    unit = MILLISECONDS
    better = Better.LOWER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return nanoseconds a request."""
        return _per_server_request(run, run.facts.server.engine_ns)


def _per_server_request(run: Run, total_ns: int | None) -> float | None:
    requests = run.facts.server.requests
    return None if total_ns is None or not requests else total_ns / requests


class ServerMemory(RunMetric):
    """Most resident memory of the server's processes at once, warm-up included."""

    name = "server_memory_mib"
    header = "Server memory"
    unit = MIB
    better = Better.LOWER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return bytes."""
        return run.facts.server.memory_bytes


class KvShare(RunMetric):
    """Largest share of the KV cache in use at once, as sampled.

    Formula: `kv_tokens_peak / kv_tokens_max`, warm-up included.
    """

    name = "kv_share"
    header = "KV cache use"
    unit = SHARE
    better = Better.NEITHER

    def of(self, run: Run, slos: Slos) -> float | None:
        """Return a share from 0 to 1."""
        server = run.facts.server
        if server.kv_tokens_peak is None or not server.kv_tokens_max:
            return None
        return server.kv_tokens_peak / server.kv_tokens_max
