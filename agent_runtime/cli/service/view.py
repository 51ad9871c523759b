"""`agent-runtime view`: the page that shows threads, on this machine or as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.extras import needs_extra
from agent_runtime.cli.files import replacing
from agent_runtime.cli.parameters.ids import THREAD
from agent_runtime.cli.runtime_calls import user_store, with_runtime
from agent_runtime.cli.terminal import say, write_row

if TYPE_CHECKING:
    from agent_runtime.runtime import Runtime
    from agent_runtime.server.inspector.local import LocalAccess


@click.command()
@click.argument("thread", type=THREAD, required=False)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="The port to serve on; by default a free one.",
)
@click.option(
    "--export",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write THREAD as one page to this file instead.",
)
def view(thread: str | None, no_browser: bool, port: int, file: Path | None) -> None:
    """Open a page that shows threads: what the model saw at each step, and why.

    It is served on this machine until it is interrupted, and opens once, in one browser.
    """
    if file is not None:
        if thread is None:
            raise click.UsageError("--export writes one thread: name it, as in `view last`.")
        with_runtime(lambda runtime: _export(runtime, thread, file))
        say(f"Wrote {file}. It holds everything that was said and done on the thread.")
        return
    with_runtime(lambda runtime: _serve(runtime, thread, port, browser=not no_browser))


async def _export(runtime: Runtime, thread: str, file: Path) -> None:
    from contextlib import aclosing

    with needs_extra("server", "The page"):
        from agent_runtime.server.inspector.export import exported

    async with aclosing(exported(user_store(runtime), thread)) as pieces:
        with replacing(file) as output:
            async for piece in pieces:
                output.write(piece)


async def _serve(runtime: Runtime, thread: str | None, port: int, *, browser: bool) -> None:
    from agent_runtime.errors import ConfigError

    with needs_extra("server", "The page"):
        from agent_runtime.server.inspector.local import serve_page
    if thread is not None:
        await user_store(runtime).threads.get(thread)

    def opened(access: LocalAccess) -> None:
        address = access.address(thread)
        write_row(address)
        say("It opens once, in one browser; Ctrl-C ends it.")
        if browser:
            _open(address)

    try:
        await serve_page(runtime, opened, port=port, thread_id=thread)
    except OSError as error:
        raise ConfigError(
            f"The page cannot be served on port {port}: {error.strerror}.",
            cure="Choose another one with --port, or leave it out.",
        ) from error


def _open(address: str) -> None:
    """Open a browser in a thread of its own, since some wait for the browser to end."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
