"""A directory as a source archive: the same content gives the same bytes, and so the same digest."""

import hashlib
import io
import tarfile
from pathlib import Path

from services.cli.exits import Refused

LEFT_OUT = frozenset({".git", ".venv", "__pycache__", "node_modules"})
STORE = "sources"


def url_base(data: Path) -> str:
    """Where the workers of a `steer up` fetch what was packed, by its data directory."""
    return f"{(data.resolve() / STORE).as_uri()}/"


def pack(directory: Path) -> bytes:
    """A tar archive of the files below a directory. Raises `Refused`."""
    if not directory.is_dir():
        raise Refused(f"{directory}: not a directory")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(directory.rglob("*")):
            inside = path.relative_to(directory)
            if LEFT_OUT & set(inside.parts) or not (path.is_file() or path.is_symlink()):
                continue
            member = archive.gettarinfo(path, str(inside))
            member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
            if member.isreg():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)
    return data.getvalue()


def keep(archive: bytes, store: Path) -> str:
    """Put an archive into a store, under its digest, which is the result."""
    digest = f"sha256:{hashlib.sha256(archive).hexdigest()}"
    store.mkdir(parents=True, exist_ok=True)
    target = store / digest
    if target.exists():
        target.touch()  # it is wanted again: `steer sweep sources` goes by its age
    else:
        part = store / f".{digest}.part"
        part.write_bytes(archive)
        part.rename(target)
    return digest
