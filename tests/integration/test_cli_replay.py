"""`steer replay` over a real log that nobody decided anything in, but for what is forged here."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.cli.exits import Exit
from services.cli.replay import settings_of_services
from services.cli.session import URL_FILE
from shared import codec, subjects
from shared.model.base import Record
from shared.model.environment import Environment
from shared.model.node import NodeStatus
from shared.model.service import DecisionRecord, Term
from shared.runtime import encode, records
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from tests.integration.steer_command import Steer

NOW = datetime(2026, 3, 1, tzinfo=UTC)
STATUS = subjects.NODE_STATUS.subject("n1")
DECISION = subjects.DECISION.subject("scheduler", "node", "n1")


@pytest.fixture
def steer(server: EmbeddedServer, tmp_path: Path) -> Steer:
    return Steer(server.url, tmp_path / "data")


async def forge(bus: Bus, term: int, subject: str, record: Record) -> int:
    """As if the scheduler had written it in that term."""
    headers = {encode.SERVICE: "scheduler", encode.TERM: str(term)}
    return int(orjson.loads((await bus.request(subject, codec.encode(record), headers, within=60)).data)["seq"])


def decided(read: int, outcome: str = "joins: registered", **fields: Any) -> DecisionRecord:
    return DecisionRecord(read_sequence=read, now=NOW, outcome=outcome, **fields)


async def opened(bus: Bus) -> int:
    term = Term(holder="x", lease_revision=1, opened_at=NOW)
    return await records.put(bus, subjects.TERM, ("scheduler",), term)


async def test_a_log_without_decisions_is_in_order(steer: Steer, bus: Bus) -> None:
    await records.put(bus, subjects.ENVIRONMENT, ("shop", "web", "production"), Environment())
    result = await steer("replay", "--verify")
    assert result.code == Exit.OK, result.err
    assert result.out.splitlines() == [
        *(f"{name}: 0 decisions the same, 0 different" for name in ("scheduler", "pooler", "builder", "routes")),
        "invariants: all hold",
    ]


async def test_what_nobody_would_have_decided_and_what_a_deposed_leader_wrote_are_told_with_their_sequences(
    steer: Steer, bus: Bus
) -> None:
    first = await opened(bus)
    term = await opened(bus)
    forged = await forge(bus, term, DECISION, decided(term, changes=(STATUS,)))
    late = await forge(bus, first, STATUS, NodeStatus(state="alive", since=NOW))
    result = await steer("replay", "scheduler", "--verify")
    assert result.code == Exit.FAILED
    assert result.out.splitlines() == [
        "scheduler: 0 decisions the same, 1 different",
        f"  {DECISION} at {forged}",
        "    not made again",
        "invariants: 1 breach",
        f"  {STATUS} at {late}: is of term {first} of scheduler, though {term} was opened (invariant 1)",
    ]
    assert "1 decision comes out otherwise" in result.err and "1 breach of an invariant" in result.err
    told = (await steer("replay", "--verify", "-o", "json")).json
    assert told["services"]["scheduler"]["different"][0]["sequence"] == forged
    detail = f"is of term {first} of scheduler, though {term} was opened"
    assert told["violations"] == [{"invariant": "1", "sequence": late, "subject": STATUS, "detail": detail}]


async def test_the_log_as_it_was_before_is_in_order(steer: Steer, bus: Bus) -> None:
    term = await opened(bus)
    forged = await forge(bus, term, DECISION, decided(term))
    assert (await steer("replay", "--at", str(forged - 1))).code == Exit.OK
    assert (await steer("replay", "--at", str(forged))).code == Exit.FAILED


async def test_a_service_that_does_not_exist_is_a_mistake(steer: Steer) -> None:
    result = await steer("replay", "agent")
    assert result.code == Exit.INVALID and "none of scheduler, pooler, builder, routes" in result.err


def test_the_builder_of_a_local_plane_is_replayed_with_the_sources_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STEER_NATS_URL", raising=False)
    (tmp_path / URL_FILE).write_text("nats://127.0.0.1:4333\n")
    assert settings_of_services(tmp_path).source_url_base == f"{tmp_path.as_uri()}/sources/"
    monkeypatch.setenv("STEER_SOURCE_URL_BASE", "https://sources/")
    assert settings_of_services(tmp_path).source_url_base == "https://sources/"
    monkeypatch.setenv("STEER_NATS_URL", "nats://elsewhere:4222")
    monkeypatch.delenv("STEER_SOURCE_URL_BASE")
    assert settings_of_services(tmp_path).source_url_base == ""
