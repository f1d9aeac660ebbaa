from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from naiad.server.endpoints import Endpoints, parse_metrics
from tests.harness.server import free_ports

METRICS = """\
# HELP nv_inference_count Number of inferences
nv_inference_count{model="echo",version="1"} 4
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 3.000000
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 8
nv_trt_llm_request_metrics{model="other",request_type="active",version="1"} 2
nv_trt_llm_general_metrics{general_type="iteration_counter",model="tensorrt_llm",version="1"} 17
nv_trt_llm_general_metrics{general_type="timestamp",model="tensorrt_llm",version="1"} 1.5e9
naiad_inter_token_latency_seconds_count{model="tensorrt_llm_bls",version="1"} 5
nv_cpu_utilization nan
"""


class Pages(dict[str, tuple[int, str]]):
    """Status and body by path; 404 for others."""


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def endpoints(pages: Pages) -> Iterator[Endpoints]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = pages.get(self.path, (404, ""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Endpoints("127.0.0.1", server.server_port, server.server_port)
        server.shutdown()
        thread.join()


@pytest.fixture
def nobody() -> Endpoints:
    (port,) = free_ports(1)
    return Endpoints("127.0.0.1", port, port)


def test_ready_is_a_200_only(endpoints: Endpoints, pages: Pages, nobody: Endpoints) -> None:
    assert not endpoints.ready()
    pages["/v2/health/ready"] = (200, "")
    assert endpoints.ready()
    pages["/v2/health/ready"] = (503, "")
    assert not endpoints.ready()
    assert not nobody.ready()


def test_a_model_is_unloaded_only_when_triton_says_so(
    endpoints: Endpoints, pages: Pages, nobody: Endpoints
) -> None:
    pages["/v2/models/echo/ready"] = (400, "unloaded")
    assert endpoints.unloaded("echo")
    pages["/v2/models/echo/ready"] = (200, "")
    assert not endpoints.unloaded("echo")
    assert not nobody.unloaded("echo")


def test_requests_in_flight_are_summed_over_engines(
    endpoints: Endpoints, pages: Pages, nobody: Endpoints
) -> None:
    pages["/metrics"] = (200, METRICS)
    assert endpoints.in_flight() == 5
    pages["/metrics"] = (200, "nv_inference_count 4\n")
    assert endpoints.in_flight() is None
    assert nobody.in_flight() is None


def test_progress_is_what_moves_when_requests_get_on(
    endpoints: Endpoints, pages: Pages, nobody: Endpoints
) -> None:
    pages["/metrics"] = (200, METRICS)
    before = endpoints.progress()
    assert before is not None
    pages["/metrics"] = (
        200,
        METRICS.replace("1.5e9", "1.6e9").replace('echo",version="1"} 4', 'echo",version="1"} 5'),
    )
    assert endpoints.progress() == before
    pages["/metrics"] = (200, METRICS.replace("} 17", "} 18"))
    assert endpoints.progress() != before
    assert nobody.progress() is None


def test_samples_are_read_and_comments_are_not() -> None:
    assert parse_metrics('# TYPE a counter\na{b="x y"} 1\nc 2.5\nbroken\nd x\n') == {
        'a{b="x y"}': 1,
        "c": 2.5,
    }
