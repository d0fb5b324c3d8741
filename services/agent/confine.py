"""Names of files and directories that come from records, confined to a directory that the operator chose."""

from pathlib import Path


class Escape(ValueError):
    """The name leads out of its root, or nowhere."""


def below(root: Path, name: str) -> Path:
    """The path `name` below `root`, symbolic links resolved; empty = the root. Raises `Escape` when it leads out."""
    if Path(name).is_absolute():
        raise Escape(f"{name!r} is absolute; name it relative to {root}")
    try:
        base = root.resolve(strict=True)
        path = (base / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise Escape(f"{name!r} below {root}: {error}") from None
    if not path.is_relative_to(base):
        raise Escape(f"{name!r} leads out of {root}")
    return path
