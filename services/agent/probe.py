"""Ask a replica whether it is well, once. An answer is a `Result`, never an exception; a probe ends by its timeout."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from services.agent.driver import Driver, Launch
from shared.errors import SteerError
from shared.model.run import Healthcheck

MAX_STATUS_LINE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Result:
    """`reason` says why it did not pass."""

    passed: bool
    reason: str = ""


async def probe(driver: Driver, launch: Launch, check: Healthcheck, host: str, ports: Mapping[str, int]) -> Result:
    """One probe of a replica. Without a type it is http if the replica has a port, else tcp."""
    kind = check.type or ("http" if ports else "tcp")
    try:
        async with asyncio.timeout(check.timeout_seconds):
            if kind == "exec":
                return await _exec(driver, launch, check, ports)
            port = _port(check, ports)
            if port is None:
                return Result(False, f"{kind} probe: the replica has no port")
            return await (_http(host, port, check.path) if kind == "http" else _tcp(host, port))
    except TimeoutError:
        return Result(False, f"{kind} probe: no answer within {check.timeout_seconds:g} s")
    except (SteerError, OSError, ValueError, EOFError) as error:
        return Result(False, f"{kind} probe: {error}")


def _port(check: Healthcheck, ports: Mapping[str, int]) -> int | None:
    return ports.get(check.port) if check.port else next(iter(ports.values()), None)


async def _tcp(host: str, port: int) -> Result:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return Result(True)


async def _http(host: str, port: int, path: str) -> Result:
    """200 to 399 passes. One GET, of which only the status line is read."""
    reader, writer = await asyncio.open_connection(host, port, limit=MAX_STATUS_LINE_BYTES)
    try:
        target = path.replace("\r", "%0D").replace("\n", "%0A").replace(" ", "%20")
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = (f"GET {target} HTTP/1.1", f"Host: {authority}", "User-Agent: steersman-agent", "Connection: close")
        writer.write("\r\n".join((*lines, "", "")).encode())
        await writer.drain()
        status = _status(await reader.readline())
    finally:
        writer.close()
    return Result(True) if 200 <= status <= 399 else Result(False, f"http probe: GET {path} answered {status}")


def _status(line: bytes) -> int:
    parts = line.split()
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
        raise ValueError(f"not an HTTP answer: {line[:80]!r}")
    return int(parts[1])


async def _exec(driver: Driver, launch: Launch, check: Healthcheck, ports: Mapping[str, int]) -> Result:
    code = await driver.execute(launch, ports, check.command)
    return Result(True) if code == 0 else Result(False, f"exec probe: {check.command[0]} exited with {code}")
