"""A server that speaks S3: moto's, over real HTTP, with its buckets in memory."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.process import Service

BUCKET = "bucket"
SECRET = "a-secret-key"

# Create the bucket before the server listens: a client that waits for the port needs it.
_SERVE = f"""
import sys
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import main
s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket("{BUCKET}", "us-east-1")
main(sys.argv[1:])
"""


class S3Server(Service):
    """A server with one bucket."""

    def __init__(self, logs: Path) -> None:
        super().__init__("s3", logs)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environ(self) -> dict[str, str]:
        """Return the variables by which a client finds the server."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "an-access-key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def command(self) -> list[str]:
        return [sys.executable, "-c", _SERVE, "-H", "127.0.0.1", "-p", str(self.port)]

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture(scope="session")
def s3_server(logs: Path) -> Iterator[S3Server]:
    """The server that the tests share."""
    server = S3Server(logs)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def s3_url(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> str:
    """The URL of an empty part of the bucket; the environment names its server."""
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{abs(hash(request.node.nodeid)):x}"
