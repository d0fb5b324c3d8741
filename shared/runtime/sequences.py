"""Which version of each subject the state holds, and up to where the log is known. Pure; the only place that knows.

What the simulator relies on: `accept` and `read_sequence` are the rules for folding and for explaining.

A version is folded when its sequence is higher than that of the version the state holds. So a service's own record,
folded at its acknowledgement, is left out when it comes back through the log, and an older foreign one that comes late
changes nothing.
"""


class Sequences:
    """Per subject the sequence that was folded, and the own sequences that are ahead of the follower."""

    def __init__(self) -> None:
        self._folded: dict[str, int] = {}
        self._ahead: set[int] = set()
        self._position = 0

    def accept(self, subject: str, sequence: int) -> bool:
        """Whether a version is news; it counts as folded from then on."""
        if sequence <= self._folded.get(subject, 0):
            return False
        self._folded[subject] = sequence
        return True

    def folded(self, subject: str) -> int:
        """The sequence of the version that the state holds, 0 for none or a deletion that was left behind."""
        return self._folded.get(subject, 0)

    def acknowledged(self, sequences: range) -> None:
        """Own records were stored at these sequences and folded."""
        self._ahead.update(sequence for sequence in sequences if sequence > self._position)

    def forget(self, subject: str, sequence: int) -> None:
        """A tombstone has come through the log: nothing older of its subject can come any more."""
        if self._folded.get(subject) == sequence:
            del self._folded[subject]

    def received(self, position: int) -> None:
        """Everything up to `position` was received from the log."""
        if position > self._position:
            self._position = position
            if self._ahead:
                self._ahead = {sequence for sequence in self._ahead if sequence > position}

    @property
    def read_sequence(self) -> int:
        """Up to here every record that is read had been received or acknowledged."""
        sequence = self._position
        while sequence + 1 in self._ahead:
            sequence += 1
        return sequence
