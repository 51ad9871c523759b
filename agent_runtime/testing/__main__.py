"""Serve OpenAI's protocol on loopback, as a program.

`python -m agent_runtime.testing --port 8199 --steps 50` asks for the request's first tool 50
times, then answers.
"""

from __future__ import annotations

import argparse

import anyio

from agent_runtime.testing.model_server import OpenAIServer, Script, call_then_answer


async def _serve_forever(script: Script, port: int, factor: float) -> None:
    async with OpenAIServer(script, port=port, factor=factor) as server:
        print(server.base_url, flush=True)
        await anyio.sleep_forever()


def main() -> None:
    """Serve until interrupted; the first line printed is the base URL."""
    parser = argparse.ArgumentParser("python -m agent_runtime.testing")
    parser.add_argument("--port", type=int, default=0, help="0 for any free port")
    parser.add_argument("--steps", type=int, default=10, help="tool calls before each answer")
    parser.add_argument("--factor", type=float, default=1.0, help="its tokens for one of ours")
    options = parser.parse_args()
    try:
        anyio.run(_serve_forever, call_then_answer(options.steps), options.port, options.factor)
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
