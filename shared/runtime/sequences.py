"""Up to where the log is known, and which versions were folded ahead of it. Pure; the only place that knows.

What the simulator relies on: `accept` and `read_sequence` are the rules for folding and for explaining.

The log comes in order, so what it has passed is no news, and what it brings is, unless a version of the same subject was
folded ahead of it: a service's own record, folded at its acknowledgement, is left out when it comes back through the log,
and an older foreign one that comes late changes nothing. So only what is ahead has to be remembered.
"""


class Sequences:
    """The position in the log; per subject the version that is ahead of it, and the own sequences that are."""

    def __init__(self) -> None:
        self._ahead: dict[str, int] = {}
        self._own: set[int] = set()
        self._position = 0

    def accept(self, subject: str, sequence: int) -> bool:
        """Whether a version is news; it counts as folded from then on."""
        if sequence < self._position or sequence <= self._ahead.get(subject, 0):
            return False
        if sequence > self._position:
            self._ahead[subject] = sequence
        return True

    def acknowledged(self, sequences: range) -> None:
        """Own records were stored at these sequences and folded."""
        self._own.update(sequence for sequence in sequences if sequence > self._position)

    def received(self, position: int) -> None:
        """Everything up to `position` was received from the log; what stands there may be still in hand."""
        if position > self._position:
            self._position = position
            if self._ahead:
                self._ahead = {name: sequence for name, sequence in self._ahead.items() if sequence >= position}
            if self._own:
                self._own = {sequence for sequence in self._own if sequence > position}

    @property
    def read_sequence(self) -> int:
        """Up to here every record that is read had been received or acknowledged."""
        sequence = self._position
        while sequence + 1 in self._own:
            sequence += 1
        return sequence
