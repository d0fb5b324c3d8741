"""What Prometheus reads about one instance of a service: a registry of its own, so that several can share a process."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

COMMIT_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Every name starts with `steer_` and carries the label `service`."""

    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry()
        self._service = service
        self.leader = self._gauge("steer_leader", "1 while this instance holds a term and decides")
        self.loaded = self._gauge("steer_loaded", "1 once the log has been loaded")
        self.rehearsed = self._gauge("steer_rehearsed", "1 while a standby has nothing left to look at")
        self.position = self._gauge("steer_log_position", "Sequence up to which the log was received")
        self.lag = self._gauge("steer_log_lag_messages", "Messages of the log that wait to be folded")
        self.unreadable = self._gauge("steer_unreadable_subjects", "Subjects whose last message cannot be read")
        self.records = self._counter("steer_records_folded", "Messages of the log that were folded")
        self.decisions = self._counter("steer_decisions", "Decisions that were committed")
        self.rejected = self._counter("steer_rejected", "Bad messages copied to the quarantine")
        self.terms = self._counter("steer_terms", "Terms that this instance has opened")
        self.restarts = self._counter("steer_restarts", "Times the state was dropped and loaded anew")
        self.trimmed = self._counter("steer_trimmed_messages", "Old versions that were purged")
        self.outcomes = Counter("steer_commits", "Commits by outcome", ("service", "outcome"), registry=self.registry)
        self.commit_seconds = Histogram(
            "steer_commit_seconds",
            "Time from sending a commit to its acknowledgement",
            ("service",),
            buckets=COMMIT_BUCKETS,
            registry=self.registry,
        ).labels(service)
        self.decide_seconds = Histogram(
            "steer_decide_seconds", "Time of one pass", ("service",), buckets=COMMIT_BUCKETS, registry=self.registry
        ).labels(service)

    def committed(self, outcome: str) -> None:
        self.outcomes.labels(self._service, outcome).inc()

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(name, documentation, ("service",), registry=self.registry).labels(self._service)

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, ("service",), registry=self.registry).labels(self._service)
