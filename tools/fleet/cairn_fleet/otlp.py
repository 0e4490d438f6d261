"""OTLP's side of `cairn export`: the same metrics, pushed by OpenTelemetry's SDK over HTTP."""

import logging

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (MetricExportResult, MetricsData,
                                              PeriodicExportingMetricReader)
from opentelemetry.sdk.resources import Resource

from cairn import VERSION
from cairn.console import note
from cairn.metrics import METRICS

UNITS = {"bytes": "By", "": "1"}
TIMEOUT_SECONDS = 10


class _Remarks(logging.Handler):
    """Turns the SDK's log into one line when it gives up, with the reason of the last attempt. A
    line that equals the last one is not repeated."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self._reason, self._last = "", None

    def emit(self, record):
        words = " ".join(record.getMessage().split())
        if "retrying in" in words:
            self._reason = words.partition(" encountered while")[0]
        elif (words, self._reason) != self._last:
            self._last = words, self._reason
            note(f"cairn: OTLP: {words}" + (f" {self._reason}" if self._reason else ""))


class _Exporter(OTLPMetricExporter):
    """Remembers whether the last push arrived."""

    arrived = False

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more):
        result = super().export(metrics_data, timeout_millis, **more)
        self.arrived = result is MetricExportResult.SUCCESS
        return result


def _observer(fleet, metric):
    def observe(_options):
        for seen in fleet.look().processes:
            if seen.census:
                for more, value in metric.samples(seen.census):
                    yield Observation(value, {**seen.labels, **more})
    return observe


def _up(fleet):
    def observe(_options):
        for seen in fleet.look().processes:
            yield Observation(int(seen.census is not None), seen.labels)
    return observe


class Pusher:
    """Pushes in a thread of the SDK's, every `seconds`, until it is closed."""

    def __init__(self, url, fleet, by_size, seconds):
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(_Remarks())
        logger.propagate = False
        self._exporter = _Exporter(endpoint=url, timeout=TIMEOUT_SECONDS)
        reader = PeriodicExportingMetricReader(
            self._exporter, export_interval_millis=seconds * 1000,
            export_timeout_millis=TIMEOUT_SECONDS * 1000)
        resource = Resource({"service.name": "cairn-export", "service.version": VERSION})
        self._provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("cairn", VERSION)
        for metric in METRICS:
            if by_size or not metric.by_size:
                make = (meter.create_observable_counter if metric.kind == "counter"
                        else meter.create_observable_gauge)
                make(f"cairn.{metric.name}", [_observer(fleet, metric)],
                     unit=UNITS[metric.unit], description=metric.about)
        meter.create_observable_gauge("cairn.process_up", [_up(fleet)], unit="1",
                                      description="Whether the heap of a process could be read")

    def push(self):
        """Pushes now; whether it arrived."""
        self._provider.force_flush()
        return self._exporter.arrived

    def close(self):
        self._provider.shutdown()
