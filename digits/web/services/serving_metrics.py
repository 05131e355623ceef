"""Prometheus metrics of the prediction endpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# In seconds.
LATENCIES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)


class ServingMetrics:
    """The serving metrics of one server. ``model`` is a production name or a job ID."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "digits_serve_requests",
            "Prediction requests by model and HTTP status",
            ["model", "status"],
            registry=self._registry,
        )
        self._images = Counter(
            "digits_serve_images", "Images predicted by model", ["model"], registry=self._registry
        )
        self._latency = Histogram(
            "digits_serve_seconds",
            "Request latency in seconds, by model",
            ["model"],
            buckets=LATENCIES,
            registry=self._registry,
        )
        self._batches = Histogram(
            "digits_serve_batch_images",
            "Images per batch, across all models",
            buckets=BATCH_SIZES,
            registry=self._registry,
        )
        self._active = Gauge("digits_serve_active_requests", "Requests in progress", registry=self._registry)

    @contextmanager
    def request(self, model: str) -> Iterator[None]:
        """Record the duration of a request, handled by the block."""
        began = time.perf_counter()
        self._active.inc()
        try:
            yield
        finally:
            self._active.dec()
            self._latency.labels(model).observe(time.perf_counter() - began)

    def answered(self, model: str, status: int) -> None:
        """Record the ``status`` of a response."""
        self._requests.labels(model, status).inc()

    def predicted(self, model: str, images: int) -> None:
        """Record the number of ``images`` predicted."""
        self._images.labels(model).inc(images)

    def batch(self, size: int) -> None:
        """Record a batch of ``size`` images."""
        self._batches.observe(size)

    def as_text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
