"""Write results to files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click


@contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """Yield a file to write; it replaces `path` at the end, or after an error leaves it unchanged.

    Raises:
        click.UsageError: the file cannot be written.
    """
    try:
        with tempfile.NamedTemporaryFile(
            # In the same folder, because a rename is atomic only within a file system.
            dir=path.absolute().parent,
            prefix=f".{path.name}.",
            delete=False,
        ) as file:
            try:
                yield file
                file.flush()
                # Before the rename: after a power cut the name must not lead to an empty file.
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}.") from None
