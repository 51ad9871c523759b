"""Patterns for observing by rules: informative sentences, error lines, exit codes, kinds of calls.

What sentences tell is known in the languages that have a table.  What the patterns miss is still in
the log, and what matters most (the user's own words, and errors) does not depend on them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from agent_runtime.memory.observational.language.detect import is_unknown
from agent_runtime.memory.observational.language.rules import is_rule, kinds_of, split
from agent_runtime.prompt.observation import Priority
from agent_runtime.prompt.text import one_line, shorten, stamp_of, without_emphasis

Verb = Literal["look", "edit", "run", "plan", "other"]

LONGEST_SENTENCE = 400
"""Characters above which a sentence is shortened in its middle."""
READ_CHARS = 48_000
"""Characters of a long text that are read: half from its beginning, half from its end."""
QUESTION_CHARS = 160
"""Characters of a question that are stored with its answer."""

SAID_CHARS = 240
"""Characters of a sentence that tells neither a finding nor a decision."""

LEFT_OUT = " [...] "
"""Stands for what is left out of a statement; the line names the node that has it whole."""

_WORTH_SHORTENING = 60
"""Characters that a part of a sentence needs to say something."""

# Words that say something, and among them names inside of a sentence, numbers and quotations.
_CONTENT_WORD = re.compile(r"[^\W_]{4,}|\d+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{2}")
_NAMED = re.compile(r"(?<=[\w,] )[^\W\d_a-z][^\W_]+|\d[\w.,:%]*|[\"“«„][^\"”»“]{2,60}[\"”»“]")
_SENTENCE_END = re.compile(
    # Scripts without spaces have none behind a full stop.
    r"(?<=[.!?:])(?<!\b\d\.)(?<!\b\d\d\.)\s+(?=\S)|(?<=[。！？؟।])[」』”）]*\s*|\s*\n\s*"
)
_DENSE = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_MARKUP = re.compile(r"^(?:#{1,6}|[-*+>]|\d{1,3}[.)])\s+")

_ANNOUNCED = re.compile(
    r"^(?:(?:now|next|first|then|okay|ok|great|good|perfect)[,!. ]+)*"
    r"(?:let me|let's|I'?ll|I will|I'm going to|I need to|we need to|I should|now I|time to)\b",
    re.IGNORECASE,
)

# All repetitions are bounded, so that a line of megabytes takes linear time.
_ERROR_LINE = re.compile(
    r"^[ \t]{0,12}(?:"
    r"Traceback \(most recent|"
    r"(?:[\w.]{0,80}(?:Error|Exception|Interrupt|Exit))(?::[^\n]{0,400}|[ \t]*$)|"
    r"E  +[^\n]{0,400}|"
    r"(?:FAILED|FAIL|ERROR|FATAL|PANIC|BUILD FAILED|--- FAIL)\b[^\n]{0,400}|"
    r"(?:\S{0,120}: ?)?(?:error|fatal|panic|fatal error|Error|bash|sh|zsh|make|npm ERR!)"
    r"(?:\[\w{0,12}\])?: [^\n]{0,400}|"
    r"[^\n]{0,200}(?:command not found|No such file or directory|Permission denied|"
    r"Segmentation fault|Killed|AssertionError)[^\n]{0,200}"
    r")",
    re.MULTILINE,
)
_EXIT = re.compile(
    r"(?:<returncode>|[Ee]xit(?:ed)?(?: with)?(?: code| status)?[ :=]+|returncode[ :=]+)"
    r"(-?\d{1,9})\b"
)
_SUMMARY = re.compile(
    r"^[^\n]{0,200}\b\d+ (?:passed|failed|errors?|tests?|warnings?|files? changed|examples?)\b"
    r"[^\n]{0,200}",
    re.MULTILINE,
)
_TAG_LINE = re.compile(r"^</?[\w-]{1,40}>$|^<(returncode|exit_code)>-?\d+</\1>$")


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_VERBS: dict[Verb, frozenset[str]] = {
    "plan": words("todo todos plan taskcreate taskupdate"),
    "edit": words(
        "edit write create patch replace insert update delete remove move rename append save set "
        "add apply cancel book modify send upload"
    ),
    "run": words("bash shell exec run command terminal execute python eval test"),
    "look": words(
        "read view open cat get fetch list ls glob grep search find look show describe query info "
        "status browse recall load check"
    ),
}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LOOKING = re.compile(
    r"^\s*(?:cd [^&;\n]{1,300}(?:&&|;)\s*)?(?:cat(?!\s*(?:>|<<))|sed -n|head|tail|less|nl|grep|"
    r"egrep|rg|ag|find|ls|tree|wc|pwd|which|stat|file|du|git (?:-\S+ )?(?:log|show|diff|status|"
    r"blame|grep|branch))\b"
)


def read_part(text: str) -> str:
    """Return a text, or the two ends of a very long one."""
    if len(text) <= READ_CHARS:
        return text
    half = READ_CHARS // 2
    return f"{text[:half]}\n{text[-half:]}"


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of prose, without markup and code blocks."""
    # Every second part lies inside of a code block.
    for number, part in enumerate(read_part(text).split("```")):
        if number % 2:
            continue
        for sentence in _SENTENCE_END.split(part):
            if sentence.lstrip().startswith("#"):
                continue
            plain = without_emphasis(_MARKUP.sub("", one_line(sentence)))
            if _is_long(plain) and any(map(str.isalpha, plain)):
                yield shorten(plain, LONGEST_SENTENCE)


def _is_long(text: str) -> bool:
    # A Chinese character says as much as three letters.
    return len(text) >= 12 or len(text) + 2 * len(_DENSE.findall(text)) >= 12


def weight_of(sentence: str) -> tuple[int, Priority]:
    """Return how informative a sentence of the agent is (0 for not at all), and its priority."""
    if sentence.endswith((":", "：")):
        return 0, "info"
    kinds = kinds_of(sentence)
    if not kinds and is_unknown(sentence):
        # Kept rather than lost: nobody knows what it says.
        return 1, "info"
    found, failed = "finds" in kinds, "fails" in kinds
    decided, done = "decides" in kinds, "succeeds" in kinds
    weight = 3 * found + 2 * failed + 2 * decided + 2 * done
    weight -= 2 * bool(_ANNOUNCED.match(sentence))
    if found or failed or decided:
        return max(weight, 0), "important"
    return max(weight, 0), "done" if done else "info"


def informative_sentences(said: Sequence[str], share: float) -> frozenset[str]:
    """Return the sentences of an answer that tell most for their length, about a share of it."""
    density = density_among(said)
    left = sum(map(len, said)) * share
    chosen: set[str] = set()
    for sentence in sorted(dict.fromkeys(said), key=density, reverse=True):
        left -= min(len(sentence), SAID_CHARS)
        if left < 0 and chosen:
            break
        chosen.add(sentence)
    return frozenset(chosen)


def gist(text: str, chars: int) -> str:
    """Return the sentences of a user's text that say most, about `chars` characters in all.

    Rules come first, and questions last: the answer shows what was asked.
    """
    if len(text) <= chars:
        return text
    stamp = stamp_of(text)
    parts = split(text[len(stamp) :])
    density = density_among(parts)

    def worth(place: int) -> tuple[bool, float]:
        part = parts[place]
        asks = part.rstrip("\"'”»)] ").endswith(("?", "？", "؟"))
        return is_rule(part), density(part) * (0.5 if asks else 1)

    chosen: dict[int, str] = {}
    left = chars
    for place in sorted(range(len(parts)), key=worth, reverse=True):
        if len(parts[place]) <= left:
            chosen[place] = parts[place]
        elif left >= _WORTH_SHORTENING:
            chosen[place] = shorten(parts[place], left, LEFT_OUT)
        left -= len(chosen.get(place, "")) + 1
    return f"{stamp}{with_gaps(parts, chosen)}"


def with_gaps(parts: Sequence[str], chosen: Mapping[int, str]) -> str:
    """Return some of a text's sentences, with a mark where others were.

    Args:
        chosen: what to show, by the places of the sentences.
    """
    shown, before = "", -1
    for place, part in sorted(chosen.items()):
        gap = LEFT_OUT if place != before + 1 else " " if shown else ""
        shown, before = f"{shown}{gap}{part}", place
    end = LEFT_OUT if before + 1 < len(parts) else ""
    return f"{shown.lstrip()}{end.rstrip()}"


def density_among(among: Sequence[str]) -> Callable[[str], float]:
    """Return how much a sentence tells for its length.

    Names, numbers and what is quoted or rare among the others tell most.
    """
    often = Counter(word for one in among for word in set(_CONTENT_WORD.findall(one.lower())))

    def density(sentence: str) -> float:
        said = set(_CONTENT_WORD.findall(sentence.lower()))
        named = len(set(_NAMED.findall(sentence)))
        # Exact in any order, since that of a set differs between processes.
        rare = math.fsum(1 / often[word] for word in said)
        # The 40 keep a sentence of two words from beating one that says more.
        return (rare + 2 * named) / (len(sentence) + 40)

    return density


def answer_text(question: str, answer: str) -> str:
    """Return a user's answer as a statement of theirs, with what it answers."""
    asked = shorten(one_line(question), QUESTION_CHARS)
    return f'Asked "{asked}", the user answered: {answer}'


def binding(text: str) -> bool:
    """Return whether the user's words set a rule for later work, in any language with a table."""
    return any(map(is_rule, split(text)))


def exit_code(text: str) -> int | None:
    """Return the exit status that a command's output names, if any."""
    # Tools write it first or last; in between, the output may quote another command's.
    match = _EXIT.search(text[:400]) or _EXIT.search(text[-400:])
    return int(match[1]) if match else None


def error_lines(text: str, most: int = 6) -> list[str]:
    """Return at most `most` error lines of an output: the first and the last ones."""
    head: list[str] = []
    tail: deque[str] = deque(maxlen=max(1, most - most // 3))
    for match in _ERROR_LINE.finditer(text):
        line = one_line(match[0])
        if line.startswith("Traceback ") or line in head or line in tail:
            continue
        # The first error is often the cause and the last one the summary.
        (head if len(head) < most // 3 else tail).append(line)
    return [*head, *tail]


def ends(text: str) -> list[str]:
    """Return the first and the last line of an output that are not empty."""
    lines = [one_line(line) for line in read_part(text).splitlines()]
    lines = [line for line in lines if line and not _TAG_LINE.match(line)]
    return list(dict.fromkeys([*lines[:1], *lines[-1:]]))


def outcome_line(text: str) -> str:
    """Return the line that summarises a command's output, or its last line."""
    summaries = [one_line(match[0]) for match in _SUMMARY.finditer(text[-4000:])]
    return summaries[-1] if summaries else (ends(text[-4000:]) or [""])[-1]


def verb_of(tool: str, command: str) -> Verb:
    """Classify a call by the tool's name and its command."""
    parts = {part.lower() for part in _WORD.findall(tool)} | {tool.lower()}
    # In the order of the table: `edit_and_run` is an edit, and `update_plan` a plan.
    for verb, names in _VERBS.items():
        if parts & names:
            # A shell runs anything; `cat` and `grep` change nothing, so their calls share a line.
            return "look" if verb == "run" and _LOOKING.match(command) else verb
    return "other"
