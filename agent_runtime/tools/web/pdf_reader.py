"""A program that turns a PDF into text, in a process that can be killed.

On stdin it gets a line of JSON with the most characters to return, then the PDF.  It writes JSON
with the title and the text, or with the reason why there is none.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import resource
import sys
from typing import Any

# Bytes of address space: a file that needs more ends this program, and nothing else.
MOST_MEMORY = 1 << 30


def read(data: bytes, most: int) -> dict[str, Any]:
    """Return the title and the text of a PDF; the text is cut after `most` characters."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(data))
    # Many files are encrypted with an empty password, which only forbids printing.
    if reader.is_encrypted and not reader.decrypt(""):
        return {"problem": "it is encrypted"}
    pages: list[str] = []
    size = 0
    for number, page in enumerate(reader.pages, 1):
        pages.append(f"[page {number} of {len(reader.pages)}]\n{page.extract_text().strip()}")
        size += len(pages[-1])
        if size >= most:
            break
    title = reader.metadata.title if reader.metadata else None
    return {"title": " ".join(str(title or "").split()), "text": "\n\n".join(pages)[:most]}


def main() -> None:
    """Answer once."""
    # macOS refuses limits of memory.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    # The library warns of each oddity of a file.
    logging.disable()
    source = sys.stdin.buffer
    options = json.loads(source.readline())
    try:
        found = read(source.read(), options["most"])
    except ModuleNotFoundError as error:
        found = {"missing": (error.name or "").partition(".")[0]}
    except Exception as error:
        # Whatever the library raises about a file that is damaged, or made to harm.
        found = {"problem": f"it cannot be read ({type(error).__name__})"}
    sys.stdout.buffer.write(json.dumps(found).encode())


if __name__ == "__main__":
    main()
