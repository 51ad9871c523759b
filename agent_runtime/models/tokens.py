"""Count tokens with an offline vocabulary, calibrated by the usage that providers report.

Each model has its own vocabulary.  Counts here are in *our* tokens (OpenAI's o200k); a
`Calibration` converts them into the tokens of one model.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import logging
import os
import re
import threading
from binascii import a2b_base64
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
import orjson
from anyio.lowlevel import RunVar

from agent_runtime.files.media_types import PDF, is_text
from agent_runtime.messages import FileRef, PromptMessage, ToolSpec

if TYPE_CHECKING:
    from tiktoken import Encoding

_log = logging.getLogger(__name__)

CHUNK = 64_000
"""The most characters that are encoded at once: o200k panics on very long runs of spaces."""
REMEMBERED_CHARS = 8192
"""Counts of texts up to this length are cached."""
SHORT_CHARS = 200
"""Texts up to this length have a cache of their own: names are counted by the hundred, and would
displace the results and messages that are counted again at the next activation."""
MESSAGE_OVERHEAD = 4
"""Tokens of a message's role and delimiters."""
CALL_OVERHEAD = 8
"""Tokens of a tool call's or schema's delimiters."""
LONGEST_URI = 500
"""The most characters of a file's address in a placeholder."""
IMAGE_TOKENS = 1_600
"""The most tokens of an image, and those of one of unknown size: providers scale images down."""
LEAST_IMAGE_TOKENS = 260
"""The fewest tokens of an image: one tile of Gemini or OpenAI."""
PIXELS_A_TOKEN = 750
"""Anthropic's measure, the most expensive one for images of usual size."""
TEXT_BYTES = 20_000
"""How much of a text document prompts show."""

# Bytes per token, the fewest and the most tokens.  Bounded, because models that do not take such
# files get only their names.
_TOKENS_OF = {
    PDF: (50, 1_500, 30_000),
    "audio": (250, 100, 20_000),
    "video": (200, 1_000, 40_000),
}
_VOCABULARY = "o200k_base"
_VOCABULARY_URL = f"https://openaipublic.blob.core.windows.net/encodings/{_VOCABULARY}.tiktoken"
_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

# Words of one script with the space before them, up to three digits, punctuation, newlines, spaces.
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_BEFORE, _SUFFIX = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PATTERN = "|".join(
    (
        f"{_BEFORE}[{_UPPER}]*[{_LOWER}]+{_SUFFIX}",
        f"{_BEFORE}[{_UPPER}]+[{_LOWER}]*{_SUFFIX}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
# Runs in which a token is shorter than usual: digits, hexadecimal, base64.
_DENSE = re.compile(rb"[A-Za-z0-9+/=]{40,}|[0-9A-Fa-f]{16,}|[0-9]+")

_loading = threading.Lock()
_awaited: RunVar[anyio.Lock] = RunVar("agent_runtime_vocabulary")
"""The lock of each event loop."""


async def load_vocabulary() -> None:
    """Load the vocabulary in a thread (about 0.2 s), so that counting never stalls the loop."""
    if _loaded.cache_info().currsize:
        return
    try:
        lock = _awaited.get()
    except LookupError:
        _awaited.set(lock := anyio.Lock())
    # Runs that begin at once would otherwise start as many threads, which all wait.
    async with lock:
        await anyio.to_thread.run_sync(_encoding)


def count_text(text: str) -> int:
    """Return how many of our tokens a text has; special tokens count as plain text.

    The first call loads the vocabulary, unless `load_vocabulary` did.  Without a vocabulary on this
    machine the result is an estimate by length; nothing is ever downloaded.
    """
    if len(text) <= SHORT_CHARS:
        return _remembered_short(text)
    return _remembered(text) if len(text) <= REMEMBERED_CHARS else _count(text)


def estimate_text(text: str) -> int:
    """Estimate tokens by length: one for 4 bytes, or for 2 of digits, hexadecimal or base64."""
    data = text.encode("utf-8", "surrogatepass")
    dense = sum(len(match) for match in cast("list[bytes]", _DENSE.findall(data)))
    return -(-dense // 2) + -(-(len(data) - dense) // 4)


def count_message(message: PromptMessage) -> int:
    """Return our count of a message as it is sent, with its calls and files."""
    total = MESSAGE_OVERHEAD + count_text(message.text)
    for call in message.calls:
        total += CALL_OVERHEAD + count_text(call.name) + count_text(_json(call.arguments))
    for file in message.files:
        # Providers do not take back files that their models made.
        made = message.role == "assistant"
        total += count_text(placeholder(file)) if made else count_file(file)
    if message.opaque is not None:
        total += sum(map(count_text, _reasoning(message.opaque.data)))
    return total


def count_file(file: FileRef) -> int:
    """Estimate a file's tokens in a prompt, by its kind and its size.

    The estimate is the same for every model; reported usage corrects it.
    """
    if file.kind == "image":
        if not file.pixels:
            return IMAGE_TOKENS
        return min(max(-(-file.pixels // PIXELS_A_TOKEN), LEAST_IMAGE_TOKENS), IMAGE_TOKENS)
    named = count_text(placeholder(file))
    if not file.uri.startswith(("upload:", "tool:")):
        return named
    if file.kind == "document" and is_text(file.media_type):
        # Three bytes a token: too many rather than too few, as files may be code.
        return named + min(file.size, TEXT_BYTES) // 3
    bounds = _TOKENS_OF.get(PDF if file.media_type == PDF else file.kind)
    if bounds is None:
        return named
    bytes_a_token, least, most = bounds
    return min(max(file.size // bytes_a_token, least), most)


def count_tools(tools: Iterable[ToolSpec]) -> int:
    """Return our count of the tools' schemas."""
    return sum(
        CALL_OVERHEAD
        + count_text(tool.name)
        + count_text(tool.description)
        + count_text(_json(tool.parameters))
        for tool in tools
    )


def placeholder(file: FileRef, problem: str = "") -> str:
    """Return the text that replaces a file which a model does not get.

    Args:
        problem: why it does not get it; empty to give no reason.
    """
    known = [file.kind, file.media_type, _readable(file.size) if file.size else ""]
    about = ", ".join(filter(None, known))
    uri = file.uri if len(file.uri) <= LONGEST_URI else f"{file.uri[:LONGEST_URI]}..."
    why = f"; not shown: {problem}" if problem else ""
    return f"[file: {file.name or file.kind} ({about}) {uri}{why}]"


def _readable(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.1f} KB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


class Calibration:
    """The ratio of one model's tokens to ours, learned from the usage that it reports.

    An estimate is the last reported prompt (the anchor) plus a ratio times our count of what was
    added since.  The ratio is learned from the growth of reported prompts, so a provider's fixed
    overhead does not distort it.  Without an anchor, the estimate is the whole count times a safe
    ratio: the highest one observed lately, of whole prompts or of growth, or `start_ratio`.

    Use one for each model and thread, since the anchor belongs to one growing prompt.
    """

    REMEMBERED = 20
    """How many observations are remembered."""
    SMALLEST = 500
    """Fewer tokens do not count: a provider's fixed overhead would dominate the ratio."""

    UNLIKELY = 4.0
    """The highest plausible ratio; its inverse is the lowest."""
    OVERHEAD = 10_000
    """The most tokens that a provider plausibly adds to every prompt."""

    def __init__(self, start_ratio: float) -> None:
        self._start = start_ratio
        self._ratios: deque[float] = deque(maxlen=self.REMEMBERED)
        self._growth: deque[tuple[int, int]] = deque(maxlen=self.REMEMBERED)
        self._anchor: tuple[int, int] | None = None
        self._ratio = start_ratio

    @property
    def ratio(self) -> float:
        """The model's tokens per one of ours, in text added to a prompt."""
        return self._ratio

    @property
    def safe_ratio(self) -> float:
        """The highest ratio of the last whole prompts; `start_ratio` before there are any."""
        return max(self._ratios, default=self._start)

    def observe(self, counted: int, reported: int) -> None:
        """Learn that a prompt of `counted` of our tokens was reported as `reported`."""
        least, most = counted / self.UNLIKELY, counted * self.UNLIKELY
        if counted <= 0 or not least < reported < most + self.OVERHEAD:
            # An implausible report could forbid all larger prompts, so that no later report could
            # correct it.
            return
        if self._anchor is not None:
            added, grown = counted - self._anchor[0], reported - self._anchor[1]
            # Beyond these bounds the prompt did not grow: the two are unrelated.
            if added > 0 and added / self.UNLIKELY < grown < added * self.UNLIKELY:
                self._growth.append((added, grown))
        self._anchor = (counted, reported)
        if counted >= self.SMALLEST and reported < most:
            self._ratios.append(reported / counted)
        self._ratio = self._learned()

    def _learned(self) -> float:
        counted = sum(added for added, _ in self._growth)
        if counted >= self.SMALLEST:
            return sum(reported for _, reported in self._growth) / counted
        # Until enough was added to prompts, the ratio of the last whole one.
        return self._ratios[-1] if self._ratios else self._start

    def estimate(self, counted: int) -> int:
        """Return the tokens that the model will report for a prompt of `counted` of ours.

        With an anchor, the prompt must be an extension of the last observed one.
        """
        if self._anchor is None:
            # Of a longer prompt what is fixed is a smaller part: where we count too many tokens for
            # the tools, its ratio is nearer to that of what was added.
            return round(max(self.safe_ratio, self.ratio) * counted)
        anchor, reported = self._anchor
        return max(0, reported + round(self.ratio * (counted - anchor)))

    def reset_anchor(self) -> None:
        """Forget the anchor, because the next prompt does not extend the last one."""
        self._anchor = None


def _count(text: str) -> int:
    encoding = _encoding()
    if encoding is None:
        return estimate_text(text)
    if len(text) <= CHUNK:
        return _encode(encoding, text)
    return sum(_encode(encoding, chunk) for chunk in _chunks(text))


# A step counts each of its texts about three times: as it is logged, shared out and shown.
_remembered = functools.lru_cache(maxsize=512)(_count)
_remembered_short = functools.lru_cache(maxsize=4096)(_count)


def _encoding() -> Encoding | None:
    """Return the vocabulary, loaded once; None if this machine has none."""
    # Threads that count at once would otherwise each load it, with 50 MB.
    with _loading:
        return _loaded()


@functools.cache
def _loaded() -> Encoding | None:
    """Load the vocabulary.

    tiktoken's own loader takes longer, and downloads the file again if it is damaged.
    """
    data = _vocabulary()
    if data is None:
        return None
    import tiktoken

    # The ranks count up from 0, as the checked digest vouches.  Line by line: a list of all words
    # would raise the peak of the process's memory by 22 MB.
    lines = io.BytesIO(data)
    ranks = {a2b_base64(line.split()[0]): rank for rank, line in enumerate(lines)}
    # The encoder makes a copy of its own, so nothing else may stay in memory by then.
    del data, lines
    encoding = tiktoken.Encoding(
        _VOCABULARY, pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={}
    )
    # 25 MB that only `encode_single_token` and the like use.
    vars(encoding)["_mergeable_ranks"] = {}
    return encoding


def _vocabulary() -> bytes | None:
    """Return the vocabulary's file; None if it is missing or damaged."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or _bundled()
    # tiktoken and litellm keep vocabularies under this name.
    name = hashlib.sha1(_VOCABULARY_URL.encode(), usedforsecurity=False).hexdigest()
    if not folder or not (file := Path(folder) / name).is_file():
        return None
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != _SHA256:
        _log.warning("The vocabulary %s is damaged; tokens are estimated by length.", file)
        return None
    return data


def _bundled() -> str:
    """Return the folder of the vocabularies in litellm's wheel, found without importing it."""
    spec = importlib.util.find_spec("litellm")
    roots = spec.submodule_search_locations if spec else None
    return str(Path(roots[0]) / "litellm_core_utils" / "tokenizers") if roots else ""


def _encode(encoding: Encoding, text: str) -> int:
    try:
        return len(encoding.encode_ordinary(text))
    except BaseException as error:
        # The tokenizer's panics do not derive from `Exception`; only their name identifies them.
        if type(error).__name__ != "PanicException":
            raise
        return estimate_text(text)


def _chunks(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + CHUNK
        if end < len(text):
            # Between words, where the tokenizer would split as well.
            cut = max(text.rfind("\n", start, end), text.rfind(" ", start, end))
            end = cut if cut > start else end
        yield text[start:end]
        start = end


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode() if value else "{}"


def _reasoning(data: dict[str, Any]) -> Iterator[str]:
    """Yield the reasoning in an opaque part; signatures are not counted by providers."""
    blocks = cast("list[dict[str, Any]]", data.get("thinking_blocks") or [])
    for block in blocks:
        yield str(block.get("thinking") or block.get("data") or "")
    if not blocks and data.get("reasoning_content"):
        yield str(data["reasoning_content"])
