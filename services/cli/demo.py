"""`steer demo`."""


def command() -> None:
    """Not yet."""
