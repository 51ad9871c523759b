"""A program that becomes the program of an MCP server.

    launcher.py -c '{"argv": ["npx", …], "stdin": 7}'

The supervisor closes the standard input of what it runs, and a server needs one: file `stdin`
becomes it.  Only the standard library is used (`python -I -S`).
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Become the program."""
    what = json.loads(sys.argv[2])
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
