"""The driver for libSQL servers over HTTP: `libsql:`, `http:` and `https:` URLs."""

from __future__ import annotations

import base64
import functools
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import orjson

from agent_runtime_storage.contract.errors import StoreError, StoreUnavailable
from agent_runtime_storage.drivers.libsql.address import Address, parse_address
from agent_runtime_storage.drivers.libsql.error_mapping import (
    TransientFailure,
    map_libsql_error,
    not_a_server,
    refused_token,
)
from agent_runtime_storage.drivers.libsql.hrana import (
    BatchAnswer,
    HranaBatchPlan,
    HranaError,
    HranaStep,
    StepResult,
)
from agent_runtime_storage.drivers.libsql.remote import RemoteDriver

# The time that a server lets a transaction hold its lock; each batch of a request may wait for it.
_LOCK_SECONDS = 5.0
_KEEP_ALIVE = 30.0
# Only v3 has cursors, for answers that are too large for a pipeline.
_VERSIONS = ("v3", "v2")
# Without it the server keeps the stream, and a connection to the database, until it expires.
_CLOSE = {"type": "close"}
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Return the context for all servers of the process: reading the certificates is slow."""
    return httpx.create_ssl_context()


class HttpDriver(RemoteDriver):
    """A libSQL server over HTTP; see `Driver`."""

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        auth_token: str | None = None,
        concurrency: int = 4,
        timeout: float = 30.0,
        patience: float = 60.0,
    ) -> HttpDriver:
        """Connect to a server and ask what it can do.

        Args:
            url: `libsql://host`, `http://host:port` or `https://host`.
            auth_token: the server's token, if the URL does not carry it.
            concurrency: the number of concurrent read requests, each with up to 8 queries; with
                more connections httpx gets slower for each.
            timeout: seconds that an answer may take.
            patience: seconds to wait for a server that is down or busy, once the store is open.

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses the token.
            StoreError: the URL is wrong, or the server too old.
        """
        address = parse_address(url, auth_token=auth_token)
        transport = HttpTransport(address, concurrency=concurrency, timeout=timeout)
        driver = cls(transport, address.shown, patience=patience)
        await driver._begin()
        return driver


class HttpTransport:
    """Hrana's pipelines over HTTP; each request opens and closes its own stream."""

    def __init__(self, address: Address, *, concurrency: int, timeout: float) -> None:
        self.read_lanes = concurrency
        self.read_group = 8
        self._shown = address.shown
        self._timeout = timeout
        self._version: str | None = None
        headers = {"Content-Type": "application/json"}
        if address.token is not None:
            headers["Authorization"] = f"Bearer {address.token}"
        elif address.login is not None:
            login = base64.b64encode(":".join(address.login).encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        try:
            self._client = httpx.AsyncClient(
                base_url=address.url,
                headers=headers,
                timeout=timeout,
                verify=_certificates() if address.url.startswith("https:") else False,
                # The lanes limit the requests, so none waits for a connection here.
                limits=httpx.Limits(
                    max_keepalive_connections=concurrency + 2, keepalive_expiry=_KEEP_ALIVE
                ),
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise StoreError(
                f"The database URL {address.shown} or its token is malformed.",
                cure="Check host and port, and that the token has no spaces or line ends.",
            ) from error

    async def query(self, steps: Sequence[HranaStep]) -> list[StepResult | Exception]:
        """Run reading statements; see `Transport`."""
        requests = [{"type": "execute", "stmt": step["stmt"]} for step in steps]
        results: list[StepResult | Exception] = []
        answers = await self._pipeline(requests, self._timeout)
        for step, answer in zip(steps, answers, strict=True):
            if answer["type"] == "ok":
                results.append(answer["response"]["result"])
            elif answer["error"].get("code") == "RESPONSE_TOO_LARGE" and self._version == "v3":
                try:
                    results.append(await self._stream(step))
                except (TransientFailure, StoreError) as error:
                    results.append(error)
            else:
                results.append(self._map(answer["error"]))
        return results

    async def write(self, plans: Sequence[HranaBatchPlan]) -> list[BatchAnswer | Exception]:
        """Run batches one after another; see `Transport`."""
        requests = [{"type": "batch", "batch": {"steps": plan.steps}} for plan in plans]
        # They run one after another, each after a wait for the lock, and are answered together.
        timeout = self._timeout + _LOCK_SECONDS * (len(plans) - 1)
        answers: list[BatchAnswer | Exception] = []
        for answer in await self._pipeline(requests, timeout):
            if answer["type"] == "ok":
                answers.append(answer["response"]["result"])
            else:
                answers.append(self._map(answer["error"]))
        return answers

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _pipeline(
        self, requests: Sequence[Mapping[str, Any]], timeout: float
    ) -> list[dict[str, Any]]:
        """Send one pipeline and return its answers."""
        content = orjson.dumps({"baton": None, "requests": [*requests, _CLOSE]})
        if self._version is None:
            response = await self._post_first(content, timeout)
        else:
            response = await self._post(f"{self._version}/pipeline", content, timeout)
        self._raise_for_status(response)
        try:
            results = orjson.loads(response.content)["results"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise not_a_server(self._shown, "the answer is no Hrana") from error
        if len(results) != len(requests) + 1:
            raise not_a_server(self._shown, "the answer has another length than the request")
        return results[:-1]

    async def _post_first(self, content: bytes, timeout: float) -> httpx.Response:
        """Detect the server's protocol version."""
        newest, older = _VERSIONS
        version, response = newest, await self._post(f"{newest}/pipeline", content, timeout)
        # A server without this version has run nothing, so the request can be repeated.
        if response.status_code == 404:
            version, response = older, await self._post(f"{older}/pipeline", content, timeout)
        if response.is_success:
            self._version = version
        return response

    async def _post(self, path: str, content: bytes, timeout: float) -> httpx.Response:
        # A server that is there accepts a connection at once; the rest of the time is for its
        # answer.
        limits = httpx.Timeout(timeout, connect=min(timeout, 10.0))
        try:
            return await self._client.post(path, content=content, timeout=limits)
        except httpx.HTTPError as error:
            raise self._failure(error) from error

    async def _stream(self, step: HranaStep) -> StepResult:
        """Run a query by cursor: its answer is too large for a pipeline."""
        content = orjson.dumps({"baton": None, "batch": {"steps": [step]}})
        rows: list[list[dict[str, Any]]] = []
        try:
            async with self._client.stream("POST", "v3/cursor", content=content) as response:
                if not response.is_success:
                    await response.aread()
                    self._raise_for_status(response)
                ended = False
                async for line in response.aiter_lines():
                    entry: dict[str, Any] = orjson.loads(line) if line else {}
                    match entry.get("type"):
                        case "row":
                            rows.append(entry["row"])
                        case "step_end":
                            ended = True
                        case "step_error" | "error":
                            raise self._map(entry["error"])
                        case _:
                            continue
        except httpx.HTTPError as error:
            raise self._failure(error) from error
        except orjson.JSONDecodeError as error:
            raise not_a_server(self._shown, "the answer is no Hrana") from error
        # The connection may break between two lines, which is a valid end of a stream without a
        # length.
        if not ended:
            raise TransientFailure("lost", "the answer ended early")
        return {"rows": rows}

    def _map(self, error: HranaError) -> Exception:
        return map_libsql_error(error.get("code"), error.get("message", ""), self._shown)

    def _failure(self, error: httpx.HTTPError) -> Exception:
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        if isinstance(error, httpx.ConnectError) and "CERTIFICATE_VERIFY_FAILED" in why:
            return StoreUnavailable(
                f"The certificate of {self._shown} cannot be trusted.",
                cure="Check the host's name; a plain connection is `libsql://host:port?tls=0`.",
            )
        return TransientFailure("unsent" if isinstance(error, _NOT_SENT) else "lost", why)

    def _raise_for_status(self, response: httpx.Response) -> None:
        match status := response.status_code:
            case _ if response.is_success:
                return
            # A token that only reads: the server tells it apart from a wrong one in words only.
            case 403 if "write permission" in response.text.lower():
                raise map_libsql_error("SQLITE_PERM", "the token only reads", self._shown)
            case 401 | 403:
                raise refused_token(self._shown)
            case 413:
                raise StoreError(
                    f"The database {self._shown} refused a request as too large.",
                    cure="Raise the server's limit, or set AGENT_RUNTIME_OBJECT_STORE_URL, which "
                    "takes large bodies out of the database.",
                )
            case 429 | 503:
                raise TransientFailure("busy", f"the server answered {status}")
            case _ if status >= 500:
                raise TransientFailure("lost", f"the server answered {status}")
            case 400 if self._version is not None:
                raise StoreError(
                    f"The database {self._shown} refused a request: {response.text[:200]}."
                )
            case _:
                raise not_a_server(self._shown, f"it answered {status}")
