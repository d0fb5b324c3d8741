"""Who a process is on the bus, and whom it trusts: what its settings name, read and looked at before it is used.

A file that cannot be used is a setting that cannot be used: the client would find out late, and in obscure words.
"""

import ssl
from pathlib import Path

import nkeys

from shared.errors import ConfigurationError
from shared.runtime.settings import Settings

INBOX = "_INBOX"


def inbox_prefix(seed_file: str) -> str:
    """`_INBOX.<public key>` for an identity with an nkey, so that its answers can be its own; else `_INBOX`."""
    if not seed_file:
        return INBOX
    try:
        public = nkeys.from_seed(Path(seed_file).read_bytes().strip()).public_key.decode()
    except (OSError, ValueError, nkeys.NkeysError) as error:
        raise ConfigurationError(f"{seed_file} holds no seed of an nkey: {error or type(error).__name__}") from None
    return f"{INBOX}.{public}"


def credentials(file: str) -> str | None:
    """The path of a credentials file, once it is seen to be one; None where none is set."""
    if not file:
        return None
    try:
        text = Path(file).read_text()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} holds no credentials: {error}") from None
    if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
        raise ConfigurationError(f"{file} holds no credentials: no user token and its seed in it")
    return file


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """With the authority and the certificate that the settings name; None where they name neither."""
    if not (settings.tls_ca or settings.tls_cert):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
    except OSError as error:
        raise ConfigurationError(f"STEER_TLS_CA={settings.tls_ca!r} cannot be used: {error}") from error
    if settings.tls_cert:
        try:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
        except OSError as error:
            raise ConfigurationError(
                f"STEER_TLS_CERT={settings.tls_cert!r} with its key cannot be used: {error}"
            ) from error
    return context
