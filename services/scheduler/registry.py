"""Deleting from an OCI registry over its HTTP API: the digest behind a tag, and the manifest behind a digest.

Only what the distribution specification says: `HEAD` and `DELETE` on `/v2/<repository>/manifests/<reference>`. What is
not there counts as deleted. Blobs that no manifest needs are left to the registry's own garbage collection.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from shared.errors import ConfigurationError, SteerError

TIMEOUT_SECONDS = 30.0
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
DIGEST = "Docker-Content-Digest"


class RegistryFailed(SteerError):
    """The registry did not do what was asked, and why; another try may help."""


class Registry:
    """One registry at `url`, as in `http://registry.example.com:5000`; a name and password in it are sent as they are."""

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        scheme, separator, rest = url.partition("://")  # the rest may hold a password: it is not shown
        if scheme not in ("http", "https") or not separator or not rest:
            raise ConfigurationError("the URL of the registry is wanted as https://host:5000")
        self._url = URL(url)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_seconds))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def digest(self, repository: str, tag: str) -> str | None:
        """The digest that a tag stands for; None where there is no such tag. Raises `RegistryFailed`."""
        async with self._ask("HEAD", repository, tag) as response:
            if response.status == 404:
                return None
            if response.status != 200:
                raise RegistryFailed(f"{repository}:{tag}: the registry answers {response.status} {response.reason}")
            digest = response.headers.get(DIGEST, "")
            if not digest:
                raise RegistryFailed(f"{repository}:{tag}: the registry names no digest ({DIGEST} is missing)")
            return digest

    async def delete(self, repository: str, digest: str) -> None:
        """Delete a manifest, and with it every tag that stands for it. Raises `RegistryFailed`."""
        async with self._ask("DELETE", repository, digest) as response:
            if response.status == 405:
                raise RegistryFailed(f"{repository}@{digest}: the registry does not allow deletion")
            if response.status not in (200, 202, 404):
                raise RegistryFailed(f"{repository}@{digest}: the registry answers {response.status} {response.reason}")

    @asynccontextmanager
    async def _ask(self, method: str, repository: str, reference: str) -> AsyncIterator[aiohttp.ClientResponse]:
        prefix = self._url.path.rstrip("/")
        url = self._url.with_path(f"/v2{prefix}/{repository}/manifests/{reference}")
        try:
            async with self._session.request(method, url, headers={"Accept": MANIFESTS}) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            shown = url.with_user(None)
            raise RegistryFailed(f"{method} {shown}: {error or type(error).__name__}") from error
