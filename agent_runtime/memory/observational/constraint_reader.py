"""Read the user's constraints from a branch, and find what supersedes them.

Only the user's own words count: messages, steering, answers, and reasons given with a decision.
Nothing that a tool, a model or the runtime says becomes a constraint.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence

import anyio.to_thread

from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.observational.language.rules import SENTENCE, binds
from agent_runtime.memory.observational.observer.sentences import answer_text
from agent_runtime.memory.observational.superseding import ends_something, supersedes
from agent_runtime.messages import LoggedMessage, Note, UserMessage, decode_message
from agent_runtime.prompt.constraints import Constraint, Constraints, merge_constraints, own_words
from agent_runtime.prompt.text import one_line, shorten
from agent_runtime_storage.contract.records.log import Node
from agent_runtime_storage.contract.records.questions import QuestionRow

OFF_LOOP = 20_000
"""Above this many characters the user's words are read in a thread."""
ANSWERS = 10_000
"""How many of the thread's newest answers are read."""
PAGE = 200
"""How many log nodes are read at once."""
LONGEST = 800
"""Characters of a constraint; a longer one is shortened and names its node."""
PIECE = 20_000
"""Characters of a line that are read at once."""
# Not before a small letter, as after an abbreviation; CJK text has no space after its full stop.
_ENDS = re.compile(r"(?<=[.!?…])[\"')\]*_”]*\s+(?=[^a-zà-ÿ])|(?<=[。！？；।؟])\s*")
_SHORT_FOR = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|excl|no|nr|mr|mrs|dr|fig|sec|z\.b|d\.h|bzw|usw|ca)\.)$",
    re.IGNORECASE,
)
_ITEM = re.compile(r"^\s*(?:[-*+•>]|\d{1,3}[.)]|[a-z][.)])\s+")
_HEADING = re.compile(
    r"^\s*(?:#{1,6}\s*)?\W{0,3}(?:\w+ ){0,2}(?:rules?|constraints?|requirements?|guidelines|"
    r"conventions|do(?:s and)? ?n[o']ts|restrictions|regeln|vorgaben|règles|reglas|regole|regras|"
    r"правила|规则|規則|要求|ルール|규칙)\W{0,4}$",
    re.IGNORECASE,
)
_STEERED = re.compile(
    r"^(?:The user says, (?:while you work|to an earlier run): "
    r"|You were stopped because .{1,80}\. The user says: go on[^.]{0,40}\.)"
)
"""What the runtime puts before a steering message."""
_ALLOWED = re.compile(r"^The user allowed the call of \S+ and says: ")
"""What it puts before the reason of an approval."""
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_ALIKE = str.maketrans("123456789", "000000000")
# Characters from which a line without an end may be wrapped.
_WRAPPED = 40


async def constraints_of(log: RunLog) -> Constraints:
    """Return what the user requires on the run's branch, up to its head.

    Nodes that the activation's constraints cover are not read again.  Nodes that left the prompt
    before constraints were recorded, in an earlier version, are read from the store once.
    """
    view, known = log.view, log.view.start.constraints
    if not view.entries or view.entries[-1].seq <= known.read:
        return known
    messages = [(one.seq, one.message) for one in view.entries if one.seq > known.read]
    # Answers are rows, not nodes; each counts at the node whose call asked for it.
    answers = await log.store.questions.list(
        thread_id=log.lease.thread_id, status="answered", limit=ANSWERS
    )
    answered = {row.node_id for row in answers}
    messages = [*await _before(log, known, answered), *messages]
    if sum(len(one.text) for _, one in messages if one.type != "assistant") > OFF_LOOP:
        return await anyio.to_thread.run_sync(read_constraints, known, messages, answers)
    return read_constraints(known, messages, answers)


async def _before(
    log: RunLog, known: Constraints, answered: Container[int]
) -> list[tuple[int, LoggedMessage]]:
    """Read the unread nodes before the raw ones.

    Args:
        answered: the agent's nodes at which people answered.
    """
    parent = log.view.entries[0].parent_id
    if parent is None or parent <= known.read:
        return []
    unread: list[Node] = []
    # In pages, because only the user's nodes of a long branch are kept.
    while parent is not None and parent > known.read:
        page = await log.store.log.branch(log.lease.thread_id, parent, limit=PAGE)
        unread += (
            node
            for node in reversed(page)
            # The agent's nodes are read only where somebody answered: nothing that it says is a
            # rule.
            if node.seq > known.read and (node.role != "assistant" or node.seq in answered)
        )
        parent = page[0].parent_id
    return await anyio.to_thread.run_sync(
        lambda: [(node.seq, decode_message(node.body)) for node in reversed(unread)]
    )


def read_constraints(
    known: Constraints,
    messages: Iterable[tuple[int, LoggedMessage]],
    answers: Sequence[QuestionRow] = (),
) -> Constraints:
    """Add the constraints of more nodes of the branch, and remove what they supersede.

    Args:
        messages: the nodes that follow those already read, in order; older ones are skipped.
        answers: people's answers on the thread.
    """
    by_node: dict[int, list[Constraint]] = {}
    for row in answers:
        for one in _answered(row):
            by_node.setdefault(row.node_id, []).append(one)
    items, last = list(known.items), known.read
    for node, message in messages:
        if node <= known.read:
            continue
        last = node
        stated = [_constraint(node, text) for text in required(user_words(message))]
        for one in (*stated, *by_node.get(node, ())):
            # Comparing every pair would take quadratic time, and few sentences end anything.
            if ends_something(one.text):
                items = [each for each in items if not supersedes(one.text, each.text)]
            items.append(one)
    return merge_constraints(known, items, last)


def user_words(message: LoggedMessage) -> str:
    """Return the user's own words in a message; empty if it has none."""
    if isinstance(message, UserMessage):
        return own_words(message.text)
    if not isinstance(message, Note) or message.source != "steer":
        return ""
    # `_answered` has the reason of an approval, together with the call that it is about.
    return "" if _ALLOWED.match(message.text) else _STEERED.sub("", message.text, count=1)


def _constraint(node: int, text: str) -> Constraint:
    gap = f" [... shortened; whole in node {node} ...] "
    return Constraint(node, shorten(one_line(text), LONGEST, gap))


def _answered(row: QuestionRow) -> Iterator[Constraint]:
    """Yield the constraint in a person's answer: the answer, or the reason of a decision."""
    if row.status != "answered":
        return
    if row.kind in ("single", "multiple", "text"):
        given = row.answer.get("text") or "; ".join(map(str, row.answer.get("choices", ())))
        yield _constraint(row.node_id, answer_text(str(row.body.get("text", "")), str(given)))
    elif row.kind == "approval" and (reason := str(row.answer.get("reason", "")).strip()):
        how = "allowed" if row.answer.get("allow") else "refused"
        text = f"The user {how} a call of {row.body.get('tool', '')}: {reason}"
        yield _constraint(row.node_id, text)


def required(text: str) -> Iterator[str]:
    """Yield the sentences of a user's text that require, forbid or correct something."""
    for block in _blocks(text):
        ruled = False
        lead: list[str] = []
        for line in block:
            item = _ITEM.match(line)
            if lead and item:
                # A list belongs to the line that announces it.
                lead.append(one_line(line))
                continue
            yield from _joined(lead)
            lead, plain = [], one_line(_ITEM.sub("", line)).lstrip("#> ")
            if _HEADING.match(line):
                ruled = True
            elif plain.endswith((":", "：")) and _is_constraint(plain):
                lead = [plain]
            else:
                yield from (
                    one
                    for one in _sentences(plain)
                    if one and ((ruled and item) or _is_constraint(one))
                )
        yield from _joined(lead)


def _joined(lead: Sequence[str]) -> Iterator[str]:
    if lead:
        yield " ".join(lead)


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the paragraphs of a text, by their lines: wrapped ones joined, code left out."""
    block: list[str] = []
    fenced = False
    lines = text.splitlines()
    # A fence that is never closed opens no code, or one stray mark would hide every rule after it.
    closing = sum(1 for line in lines if _FENCE.match(line)) // 2 * 2
    for line in lines:
        if closing and _FENCE.match(line):
            closing, fenced = closing - 1, not fenced
        elif fenced:
            continue
        elif not line.strip():
            # An empty line after "Rules:" does not separate the list from what announces it.
            if block and not (len(block) == 1 and block[0].rstrip().endswith((":", "："))):
                yield block
                block = []
        elif block and _continues(block[-1], line):
            block[-1] = f"{block[-1].rstrip()} {line.strip()}"
        else:
            block.append(line)
    if block:
        yield block


def _continues(before: str, line: str) -> bool:
    """Return whether a line continues the sentence of the line before it."""
    if _ITEM.match(line) or before.rstrip().endswith((".", "!", "?", ":", ";", "。", "！", "：")):
        return False
    # Bounded, because joining line after line would take quadratic time in a long text.
    if len(before) > 4 * LONGEST or _HEADING.match(before):
        return False
    return line[:1].isspace() or (len(before) >= _WRAPPED and not line.lstrip()[:1].isupper())


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a line, as they were written."""
    # A search covers one piece at most, so the time is linear in any text.
    start = 0
    while True:
        piece = text[start : start + PIECE]
        ends = list(_ends(piece))
        if start + len(piece) >= len(text):
            ends.append(len(piece))
        begin = 0
        # An unfinished sentence is read with the next piece, unless it fills a whole piece.
        for end in ends or [len(piece)]:
            yield piece[begin:end].strip()
            begin = end
        start += begin
        if start >= len(text):
            return


def _ends(text: str) -> Iterator[int]:
    """Yield the ends of sentences."""
    begin = 0
    for end in _ENDS.finditer(text):
        if not _SHORT_FOR.search(text[max(begin, end.start() - 8) : end.start()]):
            begin = end.end()
            yield begin


def _is_constraint(sentence: str) -> bool:
    """Return whether a sentence requires, forbids or corrects something."""
    # By their shape, because a pasted log has thousands of lines that differ in numbers only.
    shape = sentence[:SENTENCE].translate(_ALIKE)
    return any(map(str.isalpha, shape)) and binds(shape)
