"""What goes wrong, and when: drawn from the seed before anything runs."""

from dataclasses import dataclass


@dataclass(slots=True)
class Rates:
    """Chances, each of one request."""

    refused: float = 0.0
    """Refused with 10164, as on a replicated stream."""
    lost_answer: float = 0.0
    """Stored, and the answer never comes."""
    late_landing: float = 0.0
    """Stored after its sender has given up."""
    lost_request: float = 0.0
    """Never stored, and no answer comes."""
    lost_renewal: float = 0.0
    """A renewal of the lease that does not arrive."""

    def calm(self) -> None:
        """From now on nothing goes wrong."""
        self.refused = self.lost_answer = self.late_landing = self.lost_request = self.lost_renewal = 0.0
