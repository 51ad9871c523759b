"""A server on stdio that does what a real one should not; its folder holds what it offers.

    raw_server.py FOLDER

`tools.json` in the folder holds its tools, and `prompts.json`, if there is one, its prompts; each
call is added to `calls`, each cancellation to `cancelled`.  A call does what the tool's name says.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
folder = Path(sys.argv[1]) if __name__ == "__main__" else Path()


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(name: str, text: str) -> None:
    with (folder / name).open("a") as file:
        file.write(text + "\n")


def result(tool: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Do what a tool's name says; None for no answer."""
    note("calls", json.dumps([tool, arguments]))
    text = json.dumps(arguments)
    match tool:
        case "die":
            os._exit(3)
        case "hang":
            return None
        case "deaf":
            time.sleep(600)
        case "flood":
            while True:
                sys.stdout.write("x" * 65536)
        case "notices":
            while True:
                send(method="notifications/progress", params={"progressToken": 1, "progress": 1})
        case "pings":
            for number in range(20):
                send(id=f"ping-{number}", method="ping")
        case "requests":
            while True:
                send(id="ping", method="ping")
        case "noise":
            sys.stdout.write("not a message\n" * 10)
        case "change":
            changed = json.loads((folder / "tools.json").read_text())
            changed[0]["description"] = "Now something else."
            (folder / "tools.json").write_text(json.dumps(changed))
            send(method="notifications/tools/list_changed")
        case "complain":
            sys.stderr.write(f"cannot use {sys.argv[2:]}\n")
            os._exit(3)
        case "secret":
            text = os.environ.get("API_TOKEN", "none")
        case "environment":
            text = " ".join(sorted(os.environ))
        case "image":
            data = base64.b64encode(PIXEL).decode()
            return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}
        case "fail":
            return {"content": [{"type": "text", "text": "no such row"}], "isError": True}
        case _:
            pass
    return {"content": [{"type": "text", "text": text}]}


def answer(message: dict[str, Any]) -> None:
    """Answer a request."""
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            about = {
                "protocolVersion": "2025-06-18",
                "capabilities": {
                    "tools": {"listChanged": True},
                    **({"prompts": {}} if _prompts() else {}),
                },
                "serverInfo": {"name": "raw", "version": "1"},
            }
            send(id=message["id"], result=about)
        case "tools/list":
            tools = json.loads((folder / "tools.json").read_text())
            if (folder / "how").read_text() == "endless":
                send(id=message["id"], result={"tools": tools, "nextCursor": "more"})
                return
            if (folder / "how").read_text() == "dies listing":
                (folder / "how").write_text("")
                time.sleep(0.3)
                os._exit(3)
            send(id=message["id"], result={"tools": tools})
        case "tools/call":
            found = result(params["name"], params.get("arguments") or {})
            if found is not None:
                send(id=message["id"], result=found)
        case "prompts/list":
            send(id=message["id"], result=_prompts())
        case "prompts/get":
            words = " ".join(params.get("arguments", {}).values())
            said = {"role": "user", "content": {"type": "text", "text": f"Review {words}."}}
            send(id=message["id"], result={"messages": [said]})
        case "notifications/cancelled":
            note("cancelled", str(params["requestId"]))
        case _:
            if "id" in message:
                send(id=message["id"], error={"code": -32601, "message": "no such method"})


def _prompts() -> dict[str, Any]:
    path = folder / "prompts.json"
    return {"prompts": json.loads(path.read_text())} if path.exists() else {}


def main() -> None:
    note("pids", str(os.getpid()))
    how = (folder / "how").read_text() if (folder / "how").exists() else ""
    if how == "dies":
        sys.stderr.write(f"bad token {os.environ.get('API_TOKEN')}\n")
        sys.exit(1)
    if how == "chatters":
        while True:
            sys.stdout.write("a line for a log\n" * 1000)
    for line in sys.stdin:
        if how != "silent":
            answer(json.loads(line))


if __name__ == "__main__":
    main()
