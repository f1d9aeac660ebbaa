"""What Triton's HTTP and metrics ports say: readiness, a model's readiness, and counters of progress."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass

__all__ = ["Endpoints", "parse_metrics"]

_TIMEOUT_S = 1.0
_SAMPLE = re.compile(r"^(?P<series>[a-zA-Z_:][\w:]*(?:\{.*\})?) (?P<value>\S+)$")
_ACTIVE = re.compile(r'^nv_trt_llm_request_metrics\{.*request_type="active".*\}$')
# What moves while requests other than the canary get on.
_PROGRESS = re.compile(
    r'^(nv_trt_llm_general_metrics\{.*general_type="iteration_counter"'
    r"|nv_llm_output_token_len_count|naiad_inter_token_latency_seconds_count)"
)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The two ports of one server; `host` as it stands in a URL."""

    host: str
    http_port: int
    metrics_port: int

    def ready(self) -> bool:
        """Whether Triton calls itself ready; it also does with dead models."""
        return self._get(self.http_port, "/v2/health/ready") is not None

    def unloaded(self, model: str) -> bool:
        """Whether Triton says that it does not serve `model`; with a dead stub it says it does."""
        status, _ = self._ask(self.http_port, f"/v2/models/{model}/ready")
        return status not in (None, http.client.OK)

    def in_flight(self) -> int | None:
        """Requests in the engines, waiting or generating; None when no engine reports that."""
        active = [value for series, value in self._metrics().items() if _ACTIVE.match(series)]
        return int(sum(active)) if active else None

    def progress(self) -> tuple[float, ...] | None:
        """Counters that change while requests get on; None when there are none to read."""
        values = tuple(value for series, value in sorted(self._metrics().items()) if _PROGRESS.match(series))
        return values or None

    def _metrics(self) -> dict[str, float]:
        text = self._get(self.metrics_port, "/metrics")
        return parse_metrics(text) if text else {}

    def _get(self, port: int, path: str) -> str | None:
        """Return the body of a 200 answer, else None."""
        status, body = self._ask(port, path)
        return body if status == http.client.OK else None

    def _ask(self, port: int, path: str) -> tuple[int | None, str]:
        """Return status and body; status None when nothing answers."""
        connection = http.client.HTTPConnection(self.host.strip("[]"), port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException):
            return None, ""
        finally:
            connection.close()
        return answer.status, body


def parse_metrics(text: str) -> dict[str, float]:
    """Return the samples of a Prometheus text page by series (name and labels as written)."""
    samples: dict[str, float] = {}
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            continue
        try:
            samples[found["series"]] = float(found["value"])
        except ValueError:  # a timestamp or exemplar follows: none of Triton's
            continue
    return samples
