"""The identities of a bus as files: one nkey seed each, `<role>.nk` with mode 0600, and nowhere else.

The directory is the list: whoever has a seed there is a user of the server. To revoke one, delete its file and write the
configuration again.
"""

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

import nkeys

from services.cli.security import Role, role_of
from shared.errors import ConfigurationError

SUFFIX = ".nk"
PASSWORD_FILE = "cluster.password"


def identities(directory: Path, wanted: Iterable[str]) -> list[tuple[Role, str]]:
    """The role and public key of each identity: those that are wanted, made where missing, and those already there."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = {*wanted, *(path.name.removesuffix(SUFFIX) for path in directory.glob(f"*{SUFFIX}"))}
    roles = [role_of(name) for name in sorted(names)]
    return [(role, _public_key(seed_file(directory, role.name))) for role in roles]


def seed_file(directory: Path, name: str) -> Path:
    return directory / f"{name}{SUFFIX}"


def cluster_password(directory: Path) -> str:
    """What the servers of a cluster know each other by: made once."""
    path = directory / PASSWORD_FILE
    _make(path, secrets.token_hex(24).encode())
    return path.read_text().strip()


def write_secret(path: Path, content: bytes) -> None:
    """Replace a file that only its owner may read."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    _make(beside, content)
    beside.replace(path)


def _public_key(path: Path) -> str:
    _make(path, nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    try:
        return str(nkeys.from_seed(path.read_bytes().strip()).public_key.decode())
    except (ValueError, nkeys.NkeysError) as error:
        raise ConfigurationError(f"{path} holds no seed of an nkey: {error or type(error).__name__}") from None


def _make(path: Path, content: bytes) -> None:
    """Create a file with mode 0600, unless it is there."""
    with contextlib.suppress(FileExistsError):
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(content)
