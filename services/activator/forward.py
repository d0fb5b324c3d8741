"""One request to one endpoint, and its answer back, both streamed.

A connection is used for one request: a replica that ends closes those that idle, and a request that meets this could not
be repeated. Whoever forwards may try another endpoint as long as nothing was sent (`NotConnected`).
"""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from services.activator.headers import end_to_end, to_endpoint

CONNECT_SECONDS = 1.0
CHUNK_BYTES = 64 * 1024
_OURS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class NotConnected(Exception):
    """The endpoint could not be reached; nothing was sent."""


class Broken(Exception):
    """The endpoint ended the connection, or said what is no HTTP, before it answered."""


def client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True, use_dns_cache=True),
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
        auto_decompress=False,
        skip_auto_headers=_OURS,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def forward(
    session: aiohttp.ClientSession, request: web.BaseRequest, address: str, cookie: str = ""
) -> web.StreamResponse:
    """The answer, sent. Raises `NotConnected` and `Broken`, both before anything was sent to the client."""
    url = URL(f"http://{address}{request.raw_path}", encoded=True)
    pairs = to_endpoint(request.headers.items(), request.remote or "unknown", request.scheme, request.host)
    body = _body(request) if request.body_exists else None
    try:
        answer = await session.request(
            request.method, url, headers=CIMultiDict(pairs), data=body, allow_redirects=False
        )
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise NotConnected(str(error)) from error
    except (aiohttp.ClientError, ConnectionError, TimeoutError, ValueError) as error:
        raise Broken(str(error) or type(error).__name__) from error
    async with answer:
        return await _answer(request, answer, cookie)


async def _body(request: web.BaseRequest) -> AsyncIterator[bytes]:
    async for chunk in request.content.iter_chunked(CHUNK_BYTES):
        yield chunk


async def _answer(request: web.BaseRequest, answer: aiohttp.ClientResponse, cookie: str) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for key, value in end_to_end(answer.headers.items()):
        response.headers.add(key, value)
    if cookie:
        response.headers.add("Set-Cookie", cookie)
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except (aiohttp.ClientError, TimeoutError) as error:
        # The head has gone out: the client must not take the part for the whole.
        if request.transport is not None:
            request.transport.abort()
        raise asyncio.CancelledError from error
    await response.write_eof()
    return response
