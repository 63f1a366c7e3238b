"""Metrics, probes and health of a real node: read by the field's own tools, down to its stop."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from tests.server.live.test_a_real_node import create_topic, produce, read_all
from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.live]

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@contextmanager
def watched(directory: Path, **environment: str) -> Iterator[tuple[NodeProcess, str]]:
    """A node and the address of its pages."""
    variables = {"TIDELOG_METRICS_BIND": "127.0.0.1:0", **environment}
    with running_node(directory, environment=variables) as node:
        found = re.search(r"metrics_listening address=(\S+)", node.log_file.read_text())
        assert found is not None, "the log tells where the pages are"
        yield node, found.group(1)


def page(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=HANG_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def values(address: str) -> dict[tuple[str, ...], float]:
    """By name and label values."""
    _, text = page(address, "/metrics")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scraper_reads_what_clients_did(tmp_path: Path) -> None:
    with watched(tmp_path) as (node, address):
        create_topic(node.bootstrap)
        produce(node.bootstrap, [b"a", b"b", b"c"])
        assert read_all(node.bootstrap) == [b"a", b"b", b"c"]
        found = values(address)
        assert found["tidelog_produce_records_total",] == 3
        assert found["tidelog_requests_total", "OK", "client", "ProduceRecords"] == 1
        assert found["tidelog_replication_leaders",] == 1
        assert found["tidelog_controller_is_active",] == 1
        assert found["process_resident_memory_bytes",] > 0
        assert found["process_open_fds",] > 0
        again = values(address)
        assert again["tidelog_node_scrape_seconds",] > 0
        fallen = [
            name for name in found if name[0].endswith("_total") and again[name] < found[name]
        ]
        assert fallen == []


def test_a_node_is_live_and_ready_and_says_so_for_each_service(tmp_path: Path) -> None:
    with watched(tmp_path) as (node, address), grpc.insecure_channel(node.bootstrap) as channel:
        assert page(address, "/livez") == (200, "live\n")
        status, text = page(address, "/readyz")
        assert (status, text.splitlines()[0]) == (200, "ready")
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for service in ("", "tidelog.v1.ProduceService", "tidelog.v1.ConfigService"):
            request = health_pb2.HealthCheckRequest(service=service)
            assert stub.Check(request, timeout=HANG_SECONDS).status == SERVING, service


def test_a_node_that_stops_says_first_that_it_does_not_serve(tmp_path: Path) -> None:
    with watched(tmp_path) as (node, _), grpc.insecure_channel(node.bootstrap) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="tidelog.v1.ProduceService")
        watch = stub.Watch(request, timeout=HANG_SECONDS)
        assert next(watch).status == SERVING
        assert node.stop() == 0
        assert next(watch).status == NOT_SERVING


def test_without_an_address_there_are_no_pages(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        assert "metrics_listening" not in node.log_file.read_text()


def test_a_slow_request_is_logged_with_what_it_was(tmp_path: Path) -> None:
    with watched(tmp_path, TIDELOG_SLOW_REQUEST_MS="1") as (node, address):
        create_topic(node.bootstrap)
        wait_until(
            lambda: "slow_request" in node.log_file.read_text(),
            turn=lambda: produce(node.bootstrap, [b"x" * 1000] * 100),
        )
        line = next(
            line for line in node.log_file.read_text().splitlines() if "slow_request" in line
        )
        assert "method=" in line
        assert "took_ms=" in line
        assert "longest_flush_ms=" in line
        slow = sum(
            value
            for name, value in values(address).items()
            if name[0] == "tidelog_slow_requests_total"
        )
        assert slow >= 1
