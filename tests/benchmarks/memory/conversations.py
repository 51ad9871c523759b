"""Small synthetic conversations in the formats of the real benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

TOPICS = ("gardens", "trains", "bread", "rivers", "lamps", "maps", "clocks", "boats")
FACTS = (
    ("pet", "What is my parrot called?", "Quincey", "By the way, my parrot is called Quincey."),
    ("town", "In which town do I live?", "Tromsdal", "I moved to the town Tromsdal this spring."),
    ("car", "What does my car cost me?", "312 euros", "My blue car costs me 312 euros a month."),
)


def filler(number: int) -> tuple[str, str]:
    """Return a message and its answer, long as real ones are, that no question is about."""
    topic = TOPICS[number % len(TOPICS)]
    first = f"Part {number} of what there is to know about {topic} follows here. "
    more = f"People who like {topic} meet on day {number} and talk for hours about old {topic}. "
    return f"Tell me about {topic}, part {number}.", first + more * 12


def longmemeval(turns: int = 30) -> list[dict[str, Any]]:
    """Return questions in LongMemEval's format: each fact is in the first of many sessions."""
    rows: list[dict[str, Any]] = []
    for place, (name, question, answer, fact) in enumerate(FACTS):
        first = [
            {"role": "user", "content": fact, "has_answer": True},
            {"role": "assistant", "content": "Good to know."},
        ]
        others = [[_turn("user", said), _turn("assistant", back)] for said, back in _fill(turns)]
        rows.append(
            {
                "question_id": name,
                "question_type": ("single-session-user", "knowledge-update", "multi-session")[
                    place
                ],
                "question": question,
                "answer": answer,
                "question_date": "2023/06/01 (Thu) 10:00",
                "haystack_dates": [f"2023/05/{day + 1:02} (Mon) 09:00" for day in range(turns + 1)],
                "haystack_session_ids": [f"s{day}" for day in range(turns + 1)],
                "haystack_sessions": [first, *others],
                "answer_session_ids": ["s0"],
            }
        )
    absent = rows[0] | {"question_id": "cat_abs", "question": "What is my cat called?"}
    return [*rows, absent | {"answer": "You never spoke of a cat."}]


def _turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _fill(count: int) -> list[tuple[str, str]]:
    return [filler(number) for number in range(count)]


def locomo() -> list[dict[str, Any]]:
    """Return a conversation in LoCoMo's format."""
    talk = {
        "speaker_a": "Ida",
        "speaker_b": "Bo",
        "session_1_date_time": "1:00 pm on 3 May, 2023",
        "session_1": [
            {"speaker": "Bo", "dia_id": "D1:1", "text": "Hi Ida!"},
            {
                "speaker": "Ida",
                "dia_id": "D1:2",
                "text": "I bought a kayak.",
                "blip_caption": "a kayak",
            },
            {"speaker": "Bo", "dia_id": "D1:3", "text": "Great."},
        ],
        "session_10_date_time": "2:00 pm on 9 May, 2023",
        "session_10": [{"speaker": "Ida", "dia_id": "D10:1", "text": "It sank."}],
        "session_11_date_time": "2:00 pm on 10 May, 2023",
    }
    qa: list[dict[str, Any]] = [
        {"question": "What sank?", "answer": "a kayak", "category": 1, "evidence": ["D1:2; D10:1"]},
        {"question": "When?", "answer": 2023, "category": 2, "evidence": ["D10:1", "D"]},
        {"question": "What did Bo buy?", "adversarial_answer": "x", "category": 5, "evidence": []},
    ]
    return [{"sample_id": "conv-1", "conversation": talk, "qa": qa}]


def beam(folder: Path, number: int = 1) -> None:
    """Write a chat in the format of BEAM's official repository."""
    chat = folder / "chats" / "100K" / str(number)
    (chat / "probing_questions").mkdir(parents=True)
    turns = [
        {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "Use tabs. ->-> 1,2"},
        {"role": "assistant", "id": 1, "content": "I will."},
    ]
    later = [{"role": "user", "id": 2, "time_anchor": "May-01-2024", "content": "Bye. ->-> 2,1"}]
    batches = [{"batch_number": 1, "turns": [turns]}, {"batch_number": 2, "turns": [later]}]
    (chat / "chat.json").write_bytes(orjson.dumps(batches))
    asked = {
        "knowledge_update": [
            {
                "question": "Tabs or spaces?",
                "answer": "Tabs",
                "source_chat_ids": {"original_info": [0], "updated_info": [[2]]},
                "rubric": ["LLM response should state: tabs"],
            }
        ],
        "abstention": [
            {"question": "Which editor?", "ideal_response": "Not stated.", "rubric": ["Not stated"]}
        ],
    }
    (chat / "probing_questions" / "probing_questions.json").write_bytes(orjson.dumps(asked))


def write(path: Path, rows: object) -> None:
    """Write rows in the format of the official files: one JSON document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(rows))
