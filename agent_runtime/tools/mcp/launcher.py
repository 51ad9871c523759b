"""A program that becomes the program of an MCP server.

    echo '{"argv": ["npx", …], "stdin": 7}' | launcher.py

The supervisor gives a script as the standard input of what it runs.  A server needs another one:
file `stdin` becomes it.  Only the standard library is used (`python -I -S`).
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Become the program."""
    what = json.loads(sys.stdin.buffer.read())
    argv = what["argv"]
    os.dup2(what["stdin"], 0)
    os.close(what["stdin"])
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="replace"))
    os._exit(127)


if __name__ == "__main__":
    main()
