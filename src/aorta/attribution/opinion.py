"""A second opinion from a language model behind any OpenAI-compatible URL. Off unless asked for.

It may add words and a little confidence; the action stands before it is asked, and nothing it says can change it. What is sent
is the summary and the evidence lines, scrubbed; what takes longer than its time is not waited for.
"""

import json
import queue
import threading
from dataclasses import dataclass, replace
from typing import Any

from aorta.attribution.http_client import HttpError, JsonClient
from aorta.attribution.nouns import Advice, Attribution
from aorta.scrub.scrubber import Scrubber

_AGREEMENT = 0.05  # what the word of a model is worth
_MOST_WORDS = 500
_INSTRUCTIONS = (
    "A training job failed. A rule-based reader came to the finding below. Answer with one JSON object: "
    '{"agrees": true or false, "words": "at most two sentences for the engineer on call"}.'
)


@dataclass(frozen=True)
class Adviser:
    """Whom to ask: `url` is the base, as in https://host/v1."""

    url: str
    model: str
    key: str | None = None
    timeout: float = 5.0


def with_opinion(attribution: Attribution, adviser: Adviser | None) -> Attribution:
    """The attribution with what the adviser added; as it was where there is none, in time or at all."""
    if adviser is None:
        return attribution
    opinion = _in_time(adviser, _question(attribution))
    if opinion is None:
        return attribution
    finding, decision = attribution.finding, attribution.decision
    if opinion.get("agrees") is True:
        finding = replace(finding, confidence=round(min(0.99, finding.confidence + _AGREEMENT), 2))
    words = opinion.get("words")
    if isinstance(words, str) and words.strip():
        said = Advice("opinion", " ".join(words.split())[:_MOST_WORDS])
        decision = replace(decision, advice=(*decision.advice, said))
    return replace(attribution, finding=finding, decision=decision)


def _question(attribution: Attribution) -> str:
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


def _in_time(adviser: Adviser, question: str) -> dict[str, Any] | None:
    """Asked in a thread: a socket's time-out bounds each read, not the whole."""
    answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    asking = threading.Thread(target=lambda: answers.put(_ask(adviser, question)), daemon=True)
    asking.start()
    try:
        return answers.get(timeout=adviser.timeout)
    except queue.Empty:
        return None


def _ask(adviser: Adviser, question: str) -> dict[str, Any] | None:
    messages = [
        {"role": "system", "content": _INSTRUCTIONS},
        {"role": "user", "content": question},
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
