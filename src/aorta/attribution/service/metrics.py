"""What the service counts, in the names of the contracts."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest


class Metrics:
    """A registry of its own, so that two services in one process do not count together."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.triggers = Counter("aorta_triggers", "Reports received", registry=self._registry)
        self.analyses = Counter("aorta_analyses", "Analyses run", registry=self._registry)
        self.decisions = Counter(
            "aorta_decisions", "Decisions given", ["action"], registry=self._registry
        )
        self.seconds = Histogram(
            "aorta_analysis_seconds", "Time of one analysis", registry=self._registry
        )

    def text(self) -> bytes:
        return generate_latest(self._registry)
