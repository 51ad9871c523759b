"""The claims of SECURITY.md name tests that exist."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT


def test_every_test_that_security_md_names_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    names = set(re.findall(r"`(test_\w+)`", text))
    assert len(files) > 10 and names
    missing = {file for file in files if not (ROOT / file).is_file()}
    sources = "".join((ROOT / file).read_text() for file in files - missing)
    missing |= {name for name in names if f"def {name}(" not in sources}
    assert missing == set()
