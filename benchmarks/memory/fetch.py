"""Download the official files of a benchmark into the folder that `--data` names."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import httpx

from agent_runtime.errors import ConfigError

CONNECT_SECONDS = 15.0
READ_SECONDS = 60.0


def fetch(path: Path, *urls: str) -> Path:
    """Download a file from the first address that has it, unless it exists; return its path.

    The file appears completely or not at all.

    Raises:
        ConfigError: no address has it, or none can be reached.
    """
    if path.is_file():
        return path
    refused = ""
    for url in urls:
        try:
            print(f"fetching {url}", file=sys.stderr)
            _download(url, path)
            return path
        except httpx.HTTPStatusError as error:
            refused = f"{url} answered {error.response.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _missing(path, f"{url} cannot be reached ({type(error).__name__})") from error
        except OSError as error:
            raise _missing(path, f"{path} cannot be written ({error.strerror})") from error
    raise _missing(path, refused)


def _download(url: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    digest = hashlib.sha256()
    try:
        with httpx.stream("GET", url, timeout=timeout, follow_redirects=True) as answer:
            answer.raise_for_status()
            with part.open("wb") as file:
                for piece in answer.iter_bytes():
                    digest.update(piece)
                    file.write(piece)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    print(f"{path}: sha256 {digest.hexdigest()}", file=sys.stderr)


def _missing(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{path.name} is not in {path.parent}, and {why}.",
        cure="Put the file there by hand, or name the folder that holds it: --data DIR.",
    )
