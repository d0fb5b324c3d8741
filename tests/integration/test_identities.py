"""Other ways to be somebody than an nkey: credentials of an account that an operator has signed, and a certificate."""

import base64
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nkeys
import orjson
import pytest

from shared.errors import ConfigurationError
from shared.runtime import bus as buses
from shared.runtime import streams
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.settings import Settings
from tests.integration.secured import make_certificates


class Identity:
    """A key of an operator, an account or a user; `signs` a token about another."""

    def __init__(self, prefix: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), prefix)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self._pair.public_key.decode()

    def signs(self, subject: str, name: str, claims: dict[str, Any]) -> str:
        body = {
            "iat": int(time.time()),
            "iss": self.public,
            "sub": subject,
            "name": name,
            "nats": {**claims, "version": 2},
        }
        body["jti"] = base64.b32encode(hashlib.sha256(orjson.dumps(body)).digest()).decode().rstrip("=")
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        signed = b".".join(_encoded(orjson.dumps(part)) for part in (head, body))
        return b".".join((signed, _encoded(self._pair.sign(signed)))).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def credentials(token: str, seed: bytes) -> str:
    """The file that `nsc` writes for a user."""
    parts = []
    for title, body in (("NATS USER JWT", token), ("USER NKEY SEED", seed.decode())):
        parts.append(f"-----BEGIN {title}-----\n{body}\n------END {title}------\n")
    return "\n".join(parts)


@pytest.fixture
def account(tmp_path: Path) -> Identity:
    return Identity(nkeys.PREFIX_BYTE_ACCOUNT)


@pytest.fixture
def operated(tmp_path: Path, account: Identity) -> Iterator[EmbeddedServer]:
    """A server that trusts an operator, who has signed one account with JetStream."""
    operator = Identity(nkeys.PREFIX_BYTE_OPERATOR)
    system = Identity(nkeys.PREFIX_BYTE_ACCOUNT)
    plain = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    stored = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    tokens = {
        each.public: operator.signs(each.public, name, {"type": "account", "limits": {**limits, "wildcards": True}})
        for each, name, limits in ((account, "steer", plain | stored), (system, "system", plain))
    }
    own = operator.signs(operator.public, "operator", {"type": "operator", "system_account": system.public})
    config = tmp_path / "nats.conf"
    preload = "\n".join(f"{public}: {token}" for public, token in tokens.items())
    config.write_text(f"operator: {own}\nresolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n")
    server = EmbeddedServer(config=config)
    server.start(tmp_path / "store")
    yield server
    server.stop()


def user_of(account: Identity, file: Path) -> str:
    """A new user of the account; the path of its credentials."""
    user = Identity(nkeys.PREFIX_BYTE_USER)
    rights = {"type": "user", "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}}
    file.write_text(credentials(account.signs(user.public, "ci", rights), user.seed))
    return str(file)


async def test_a_credentials_file_lets_a_user_of_an_account_in(
    operated: EmbeddedServer, account: Identity, tmp_path: Path
) -> None:
    settings = Settings.from_environment(
        {"STEER_NATS_URL": operated.url, "STEER_NATS_CREDS": user_of(account, tmp_path / "ci.creds")}
    )
    bus = await buses.connect(settings, "test", patience=60)
    await streams.ensure(bus)
    assert (await bus.request("$JS.API.INFO", within=60)).data
    await bus.close()


async def test_credentials_of_an_account_that_nobody_has_signed_are_refused(
    operated: EmbeddedServer, tmp_path: Path
) -> None:
    stranger = user_of(Identity(nkeys.PREFIX_BYTE_ACCOUNT), tmp_path / "stranger.creds")
    with pytest.raises(ConfigurationError, match="refuses the credentials"):
        await buses.connect(Settings(nats_url=operated.url, nats_creds=stranger), "test", patience=60)
    with pytest.raises(ConfigurationError, match="refuses the credentials"):
        await buses.connect(Settings(nats_url=operated.url), "test", patience=60)


async def test_credentials_that_are_none_are_told(operated: EmbeddedServer, tmp_path: Path) -> None:
    (tmp_path / "empty.creds").write_text("nothing\n")
    settings = Settings(nats_url=operated.url, nats_creds=str(tmp_path / "empty.creds"))
    with pytest.raises(ConfigurationError, match=r"empty\.creds holds no credentials"):
        await buses.connect(settings, "test", patience=60)


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server that lets in whoever has a certificate of its authority."""
    make_certificates(tmp_path / "tls", "own")
    paths = {"ca_file": "ca.pem", "cert_file": "own.pem", "key_file": "own-key.pem"}
    tls: dict[str, Any] = {name: str(tmp_path / "tls" / file) for name, file in paths.items()}
    config = tmp_path / "nats.conf"
    config.write_text(f"tls: {orjson.dumps({**tls, 'verify': True}).decode()}\n")
    server = EmbeddedServer(config=config)
    server.start(tmp_path / "store")
    yield server
    server.stop()


async def test_a_certificate_lets_its_owner_in_and_nobody_else(certified: EmbeddedServer, tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    variables = {
        "STEER_NATS_URL": certified.url.replace("nats://", "tls://"),
        "STEER_TLS_CA": str(tls / "ca.pem"),
        "STEER_TLS_CERT": str(tls / "own.pem"),
        "STEER_TLS_KEY": str(tls / "own-key.pem"),
    }
    bus = await buses.connect(Settings.from_environment(variables), "test", patience=60)
    await streams.ensure(bus)
    await bus.close()
    make_certificates(tmp_path / "other", "stranger")
    stranger = {
        "STEER_TLS_CERT": str(tmp_path / "other" / "stranger.pem"),
        "STEER_TLS_KEY": str(tmp_path / "other" / "stranger-key.pem"),
    }
    for changes in (stranger, {"STEER_TLS_CERT": "", "STEER_TLS_KEY": ""}):
        with pytest.raises(ConfigurationError, match="refuses the certificate"):
            await buses.connect(Settings.from_environment({**variables, **changes}), "test", patience=60)


async def test_a_certificate_without_its_key_is_told(certified: EmbeddedServer, tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    settings = Settings(
        nats_url=certified.url,
        tls_ca=str(tls / "ca.pem"),
        tls_cert=str(tls / "own.pem"),
        tls_key=str(tls / "ca-key.pem"),
    )
    with pytest.raises(ConfigurationError, match="STEER_TLS_CERT"):
        await buses.connect(settings, "test", patience=60)
