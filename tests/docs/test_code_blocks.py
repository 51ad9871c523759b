"""Run every code block of the README and the documents.

Python is executed, commands are run, settings are loaded, JSON is parsed. The model answers by a
script on loopback; the files, the loop and the database are real.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import KEYS, ROOT, blocks, pages
from tests.docs.provider import Provider, serving
from tests.docs.running import Runner, settings_of_a_new_user
from tests.packaging import first_steps

MOST_NOT_RUN = 9
"""How many blocks may be `not run`."""
LONG = {ROOT / "docs" / "how-to" / name for name in ("mcp.md", "service.md")}
"""Pages whose commands take five seconds and more; they run among the slow tests."""
PROJECT = {
    "notes.md": "# Notes\n\nThe bridge was opened in 1998.\n",
    "src/app.py": "def main() -> None:\n    print('hello')\n",
    "tests/test_app.py": "def test_main() -> None:\n    assert True\n",
    "config.toml": "[server]\nport = 8000\n",
}
# An image of one pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c626001000000050001a5f645400000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with serving() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a few files, the working directory of the commands."""
    folder = tmp_path / "project"
    for name, text in PROJECT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "screen.png").write_bytes(PNG)
    # As in an activated environment.
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.timeout(300)  # The first page imports litellm, which takes seconds of CPU time.
@pytest.mark.parametrize(
    "page",
    [pytest.param(one, marks=[pytest.mark.slow] * (one in LONG)) for one in pages()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
@pytest.mark.usefixtures("project")
def test_the_blocks_of_a_page_run(
    page: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.answers.clear()
    with settings_of_a_new_user(provider, monkeypatch), Runner(provider, monkeypatch) as runner:
        for block in blocks(page):
            runner.run(block)


def test_few_blocks_are_not_run() -> None:
    skipped = [block for page in pages() for block in blocks(page) if "not run" in block.comments]
    assert len(skipped) <= MOST_NOT_RUN, [block.where for block in skipped]


def test_blocks_for_a_fresh_clone_are_found_by_what_runs_them() -> None:
    marked = [
        block.text for page in pages() for block in blocks(page) if "fresh clone" in block.comments
    ]
    assert len(marked) >= 5
    assert set(marked) <= set(first_steps.fresh_clone_blocks())


def test_every_fence_of_a_page_is_a_block() -> None:
    for page in pages():
        fences = sum(
            line.lstrip().startswith("```") for line in page.read_text("utf-8").splitlines()
        )
        assert fences == 2 * len(list(blocks(page))), page


def test_pages_have_known_comments_only() -> None:
    known = {
        *KEYS,
        *(f"{comment}:{at}" for comment in ("settings", "generated") for at in ("begin", "end")),
    }
    for page in pages():
        comments = re.findall(r"^<!-- (.+?)(?:: .*|\n| -->)", page.read_text("utf-8"), re.MULTILINE)
        used = {comment.removesuffix(":") for comment in comments}
        assert used <= known, (page, used - known)
