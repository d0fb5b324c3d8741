"""What goes wrong, and when: chances of single requests, and troubles that come and end."""

from dataclasses import dataclass


@dataclass(slots=True)
class Rates:
    """Chances, each of one request, start or report."""

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
    failed_start: float = 0.0
    """A replica that exits before it runs."""
    exit: float = 0.0
    """A healthy replica that will exit or be unhealthy."""
    duplicate_report: float = 0.0
    lost_sample: float = 0.0

    def calm(self) -> None:
        """From now on nothing goes wrong."""
        for name in self.__slots__:
            setattr(self, name, 0.0)
