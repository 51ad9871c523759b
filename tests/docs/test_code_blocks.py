"""Every code block of the README and the documents does what it says.

Python is executed, commands are run, settings are loaded, JSON is parsed.  The model behind them
answers by a script on loopback; the files, the loop and the database are real.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import KEYS, ROOT, blocks, pages
from tests.docs.provider import Provider, serving
from tests.docs.running import Runner, settings_of_a_newcomer

MOST_NOT_RUN = 10
"""How many blocks may be left out, each with its reason."""
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
    """A folder with a few files, in which the commands run."""
    folder = tmp_path / "project"
    for name, text in PROJECT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "screen.png").write_bytes(PNG)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.timeout(300)  # The first one imports litellm, which takes seconds of CPU.
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("project")
def test_the_blocks_of_a_page_run(
    page: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.answers.clear()
    with settings_of_a_newcomer(provider, monkeypatch), Runner(provider, monkeypatch) as runner:
        for block in blocks(page):
            runner.run(block)


def test_what_is_not_run_is_counted_and_has_a_reason() -> None:
    left = [block for page in pages() for block in blocks(page) if "not run" in block.says]
    assert len(left) <= MOST_NOT_RUN, [block.where for block in left]


def test_no_fence_of_a_page_is_overlooked() -> None:
    for page in pages():
        fences = sum(
            line.lstrip().startswith("```") for line in page.read_text("utf-8").splitlines()
        )
        assert fences == 2 * len(list(blocks(page))), page


def test_the_comments_of_pages_are_known() -> None:
    known = {
        *KEYS,
        *(f"{one}:{at}" for one in ("settings", "generated") for at in ("begin", "end")),
    }
    for page in pages():
        found = re.findall(r"^<!-- (.+?)(?:: .*|\n| -->)", page.read_text("utf-8"), re.MULTILINE)
        used = {one.removesuffix(":") for one in found}
        assert used <= known, (page, used - known)
