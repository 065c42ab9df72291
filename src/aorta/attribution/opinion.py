"""A second opinion from a language model behind any OpenAI-compatible URL. Off unless asked for.

It may add words and a little confidence; the action stands before it is asked, and nothing it says
can change it. What is sent is the summary and the evidence lines, scrubbed; what takes longer than
its time is not waited for.
"""

import json
import queue
import threading
from dataclasses import dataclass, replace
from typing import Any

from aorta.attribution.client import HttpError, JsonClient
from aorta.attribution.nouns import Advice, Attribution
from aorta.scrub.scrubber import Scrubber

_AGREEMENT = 0.05  # what the word of a model is worth
_MOST_WORDS = 500
_INSTRUCTIONS = (
    "A training job failed. A rule-based reader came to the finding below. Answer with one JSON "
    "object: "
    '{"agrees": true or false, "words": "at most two sentences for the engineer on call"}.'
)


@dataclass(frozen=True)
class Adviser:
    """Whom to ask: `url` is the base, as in https://host/v1."""

    url: str
    model: str
    key: str | None = None
    timeout: float = 5.0


@dataclass(frozen=True)
class Opinion:
    agrees: bool
    words: str


def with_opinion(attribution: Attribution, adviser: Adviser | None) -> Attribution:
    """The attribution with what the adviser added; unchanged where nothing came in time."""
    opinion = None if adviser is None else opinion_on(question(attribution), adviser)
    if opinion is None:
        return attribution
    finding, decision = attribution.finding, attribution.decision
    if opinion.agrees:
        finding = replace(finding, confidence=round(min(0.99, finding.confidence + _AGREEMENT), 2))
    if opinion.words:
        decision = replace(decision, advice=(*decision.advice, Advice("opinion", opinion.words)))
    return replace(attribution, finding=finding, decision=decision)


def question(attribution: Attribution) -> str:
    """What a model is asked; it may leave this machine."""
    finding = attribution.finding
    facts = {
        "class": finding.failure_class.value,
        "summary": finding.summary,
        "action": attribution.decision.action.value,
        "last_step": finding.last_step,
        "evidence": [line.text for line in finding.evidence],
    }
    scrubber = Scrubber()
    text = json.dumps(facts, ensure_ascii=False, indent=1)
    scrubber.learn(text)
    return scrubber.text(text).text


def opinion_on(asked: str, adviser: Adviser) -> Opinion | None:
    """Asked in a thread: a socket's time-out bounds each read, not the whole."""
    answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    asking = threading.Thread(target=lambda: answers.put(_ask(adviser, asked)), daemon=True)
    asking.start()
    try:
        told = answers.get(timeout=adviser.timeout)
    except queue.Empty:
        return None
    if told is None:
        return None
    words = told.get("words")
    said = " ".join(words.split())[:_MOST_WORDS] if isinstance(words, str) else ""
    return Opinion(told.get("agrees") is True, said)


def _ask(adviser: Adviser, asked: str) -> dict[str, Any] | None:
    messages = [
        {"role": "system", "content": _INSTRUCTIONS},
        {"role": "user", "content": asked},
    ]
    body = {"model": adviser.model, "messages": messages, "temperature": 0}
    try:
        client = JsonClient(adviser.url, adviser.key)
        answer = client.call("POST", "/chat/completions", adviser.timeout, body)
        content = answer["choices"][0]["message"]["content"]
        opinion = json.loads(content[content.index("{") : content.rindex("}") + 1])
    except (HttpError, ValueError, LookupError, TypeError, AttributeError):
        return None  # no opinion: unreachable, refused, or not in the form asked for
    return opinion if isinstance(opinion, dict) else None
