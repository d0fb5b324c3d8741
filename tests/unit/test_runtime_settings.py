"""Settings from the environment."""

from pathlib import Path

import pytest

from shared.errors import ConfigurationError
from shared.runtime.settings import Settings


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = Settings.from_environment({})
    assert settings == Settings()
    assert settings.servers == ["nats://127.0.0.1:4222"]


def test_every_variable_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    settings = Settings.from_environment(
        {
            "STEER_NATS_URL": "nats://a:4222, tls://b:4222",
            "STEER_NATS_CREDS": str(file),
            "STEER_NATS_NKEY": str(file),
            "STEER_TLS_CA": str(file),
            "STEER_TLS_CERT": str(file),
            "STEER_TLS_KEY": str(file),
            "STEER_REPLICAS": "3",
            "STEER_LEASE_TTL_SECONDS": "20",
            "STEER_CLUSTER_DOMAIN": "example.com",
            "STEER_METRICS_PORT": "9100",
            "STEER_LOG_LEVEL": "debug",
            "STEER_LOG_FORMAT": "json",
            "STEER_WINDOW_SECONDS": "3600",
        }
    )
    assert settings.servers == ["nats://a:4222", "tls://b:4222"]
    assert settings == Settings(
        nats_url="nats://a:4222, tls://b:4222",
        nats_creds=str(file),
        nats_nkey=str(file),
        tls_ca=str(file),
        tls_cert=str(file),
        tls_key=str(file),
        replicas=3,
        lease_ttl_seconds=20,
        cluster_domain="example.com",
        metrics_port=9100,
        log_level="debug",
        log_format="json",
        window_seconds=3600,
    )


@pytest.mark.parametrize(("replicas", "seconds"), [("1", 3), ("3", 12), ("5", 12)])
def test_a_lease_outlives_the_election_of_the_logs_leader(replicas: str, seconds: int) -> None:
    assert Settings.from_environment({"STEER_REPLICAS": replicas}).lease_ttl_seconds == seconds


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("STEER_NATS_URL", "localhost", "not a NATS address"),
        ("STEER_NATS_URL", "nats://a:1,http://b", "not a NATS address"),
        ("STEER_NATS_CREDS", "/nowhere", "no such file"),
        ("STEER_NATS_NKEY", "/nowhere", "no such file"),
        ("STEER_TLS_CA", "/nowhere", "no such file"),
        ("STEER_REPLICAS", "2", "not one of 1, 3, 5"),
        ("STEER_LEASE_TTL_SECONDS", "0.5", "not a whole number from 1 to 3600"),
        ("STEER_METRICS_PORT", "70000", "not a whole number from 0 to 65535"),
        ("STEER_LOG_LEVEL", "loud", "not one of debug"),
        ("STEER_LOG_FORMAT", "xml", "not one of text, json"),
        ("STEER_WINDOW_SECONDS", "1", "not a whole number from 60"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_reason(variable: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{variable}='{value}': {reason}"):
        Settings.from_environment({variable: value})


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"STEER_REPLICAS.*STEER_LOG_LEVEL"):
        Settings.from_environment({"STEER_REPLICAS": "0", "STEER_LOG_LEVEL": "x"})


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigurationError, match="go together"):
        Settings.from_environment({"STEER_TLS_CERT": str(file)})
