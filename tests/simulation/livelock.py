"""A bound on what one instance commits: a service that decides for ever is found in the first second of it."""

MOST_COMMITS_PER_SECOND = 400


class Livelock(AssertionError):
    """A service that never has enough: it commits and commits, and the world does not change."""


class Commits:
    """Counts those of the last second. Raises `Livelock`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._at: list[float] = []

    def count(self, seconds: float) -> None:
        self._at = [at for at in self._at if at > seconds - 1]
        self._at.append(seconds)
        if len(self._at) > MOST_COMMITS_PER_SECOND:
            raise Livelock(f"{self._name}: {len(self._at)} commits within a second")
