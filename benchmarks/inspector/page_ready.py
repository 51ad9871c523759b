# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Measure the page itself in Chromium: until it is ready, a move of the pointer, its script.

The thread is that of `page_data`.  Each round is a new process of `agent-runtime view` and a new
profile of the browser, so nothing is known from before; then the page is loaded again.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from agent_runtime.errors import ConfigError
from benchmarks.frame import Report, at_most
from benchmarks.inspector.page_data import THREAD, opened

READY_MS = 300
MOVE_MS = 16
SCRIPT_KB = 60
MOVES = 100
SCRIPTS = ("ahead.js", "main.js")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
_READY = """
    // From the beginning of the navigation until all steps and the end of the log are drawn, and
    // the strip has shown what the pointer is over, which moves as soon as they are.
    const one = query => document.querySelector(query);
    const drawn = () => +one("#plot")?.getAttribute("aria-valuemax") >= STEPS
        && [...document.querySelectorAll("#lscroll article")].some(row =>
            row.ariaPosInSet === row.ariaSetSize && row.querySelector(".what:not([aria-busy])"));
    const whole = () => one("#sec-raw li") && !one("#panel .sk");
    const frame = then => requestAnimationFrame(() => setTimeout(then));
    function answer() {
        const plot = one("#plot"), {x, y} = plot.getBoundingClientRect();
        const was = one("#readout").textContent;
        plot.dispatchEvent(new PointerEvent("pointermove", {clientX: x + 300, clientY: y + 20}));
        const seen = () => {
            if (one("#readout").textContent === was) return requestAnimationFrame(seen);
            window.readyAt = performance.now();
            plot.dispatchEvent(new PointerEvent("pointerleave"));
        };
        frame(seen);
    }
    let waits = true;
    const watch = new MutationObserver(() => {
        if (waits && drawn()) {
            waits = false;
            frame(answer);
        }
        if (!waits && whole()) {
            watch.disconnect();
            frame(() => { window.wholeAt = performance.now(); });
        }
    });
    watch.observe(document, {subtree: true, childList: true, attributes: true});
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--steps", type=int, default=10_000, help="of the run")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")
    parser.add_argument("--observe-at", type=int, default=9000, help="tokens of raw messages")
    parser.add_argument("--database", type=Path, help="a file to keep the run in, or to reuse")


def run(args: argparse.Namespace) -> Report:
    """Make the thread, open it in the browser, and move the pointer over its strip."""
    program = os.environ.get("TEST_CHROMIUM") or shutil.which("chromium")
    if program is None:
        raise ConfigError("There is no chromium.", cure="Install it, or name it: TEST_CHROMIUM.")
    with tempfile.TemporaryDirectory() as folder:
        file = args.database or Path(folder) / "run.db"
        anyio.run(_made, file, args.steps, args.observe_at)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
            rounds = [_round(browser, file, args.steps) for _ in range(args.rounds)]
            browser.close()
    script = rounds[0].pop("script")
    figures = {name: round(median(one[name] for one in rounds), 1) for name in rounds[0]}
    sizes = {
        "script_kb": round(len(script) / 1000, 1),
        "gzipped_kb": round(len(gzip.compress(script, 9)) / 1000, 1),
    }
    targets = [
        at_most("ready, all new", figures["ready_ms"], READY_MS, "ms"),
        at_most("ready, loaded again", figures["again_ms"], READY_MS, "ms"),
        at_most("work of a move of the pointer", figures["move_ms"], MOVE_MS, "ms"),
        at_most("script", sizes["script_kb"], SCRIPT_KB, "KB"),
    ]
    return Report("page_ready", [{"steps": args.steps, **figures, **sizes}], targets)


async def _made(file: Path, steps: int, observe_at: int) -> None:
    async with opened(file, steps, observe_at):
        pass


@contextmanager
def viewed(file: Path) -> Generator[tuple[str, psutil.Process]]:
    """Show a database as `agent-runtime view` does; yield the address and the process."""
    environ = dict(os.environ) | {"AGENT_RUNTIME_DATABASE_URL": f"file:{file.resolve()}"}
    command = [sys.executable, "-m", "agent_runtime.cli", "view", THREAD, "--no-browser"]
    process = subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        found = (re.search(r"http://\S+/enter/\S+", line) for line in process.stdout)
        address = next((one[0] for one in found if one), None)
        if address is None:
            raise ConfigError("`agent-runtime view` did not start.", cure="Run it by itself.")
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


def _round(browser: Browser, file: Path, steps: int) -> dict[str, Any]:
    with viewed(file) as (address, process):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.add_init_script(_READY.replace("STEPS", str(steps)))
        worked, served = _drawing_cpu(), _cpu(process)
        page.goto(address)
        figures = {
            "ready_ms": _ready(page),
            "whole_ms": page.evaluate("window.wholeAt"),
            "page_cpu_ms": _drawing_cpu() - worked,
            "server_cpu_ms": _cpu(process) - served,
        }
        page.reload()
        figures["again_ms"] = _ready(page)
        figures["move_ms"] = _moved(page)
        base = page.url.split("#")[0] + "static/"
        script = b"".join(page.request.get(base + name).body() for name in SCRIPTS)
        context.close()
    return figures | {"script": script}


def _ready(page: Page) -> float:
    page.wait_for_function("() => window.readyAt && window.wholeAt", timeout=60_000)
    return page.evaluate("window.readyAt")


def _drawing_cpu() -> float:
    """Return what the browser's pages have used of the processor, in milliseconds."""
    below = psutil.Process().children(recursive=True)
    return sum(_cpu(one) for one in below if _is_page(one))


def _is_page(process: psutil.Process) -> bool:
    # The page of the round before may be ending.
    with contextlib.suppress(psutil.NoSuchProcess):
        return "--type=renderer" in process.cmdline()
    return False


def _cpu(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return 1000 * (times.user + times.system)
    return 0.0


def _moved(page: Page) -> float:
    """Return how long the page's thread works for a move: events, script, styles, painting."""
    plot = page.locator("#plot").bounding_box()
    assert plot is not None
    session = page.context.new_cdp_session(page)
    # By the processor's time, which other work on the machine does not lengthen.
    session.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
    session.send("Performance.enable")

    def worked() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return 1000 * next(one["value"] for one in found if one["name"] == "TaskDuration")

    before = worked()
    for move in range(MOVES):
        page.mouse.move(plot["x"] + 60 + move * (plot["width"] - 80) / MOVES, plot["y"] + 20)
        # The next frame has drawn it.
        page.evaluate("() => new Promise(requestAnimationFrame)")
    return (worked() - before) / MOVES
