"""The second opinion: asked of a real HTTP server, bounded in time, scrubbed, and never the one
that stops a job.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from benchmarks.faults.corpus import CORPUS

from aorta.attribution import Action, Attribution, Evidence, LogTail, RankEnd, attribute
from aorta.attribution.opinion import Adviser, with_opinion
from support.aorta_cli import aorta
from support.attribution_service import running_service
from support.waiting import patience, wait_until

SECRET = "hf_abcdefghijklmnopqrstuvwxyz012345"
TEXT = (
    'Traceback (most recent call last):\n  File "/home/alice/train.py", line 7, in main\n'
    f"ValueError: token {SECRET} refused for /home/alice/secret-project at 10.1.2.3\n"
)


@cache
def found() -> Attribution:
    return attribute(Evidence(tails=(LogTail(TEXT, 0),), failures=(RankEnd(0, exit_code=1),)))


@contextmanager
def model(answer: Callable[[], str | bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that takes chat completions; what it was asked is kept."""
    asked: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name the base class calls
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            content = answer()
            if isinstance(content, str):
                content = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_agreement_adds_words_and_a_little_confidence_and_leaves_the_action() -> None:
    opinion = json.dumps({"agrees": True, "words": "Rotate the token.", "action": "STOP"})
    with model(lambda: f"Sure! ```json\n{opinion}\n```") as (url, _):
        result = with_opinion(found(), Adviser(url, "m"))
    assert result.decision.action is found().decision.action is Action.RESTART
    assert result.finding.confidence == round(found().finding.confidence + 0.05, 2)
    assert result.decision.advice[-1].text == "Rotate the token."


def test_nothing_private_is_sent() -> None:
    with model(lambda: '{"agrees": false, "words": ""}') as (url, asked):
        with_opinion(found(), Adviser(url, "m"))
    sent = asked[0].decode()
    assert "ValueError" in sent
    assert not [word for word in (SECRET, "alice", "secret-project", "10.1.2.3") if word in sent]


@pytest.mark.parametrize(
    "nonsense", ["STOP", "{", b"\xff", b"[]", '{"agrees": "yes", "words": 7}', ""]
)
def test_nonsense_is_no_opinion(nonsense: str | bytes) -> None:
    with model(lambda: nonsense) as (url, _):
        assert with_opinion(found(), Adviser(url, "m")) == found()


def test_a_model_that_does_not_answer_is_not_waited_for() -> None:
    done = threading.Event()
    answered: list[str] = []

    def late() -> str:
        done.wait(patience())
        answered.append("agrees")
        return "agrees"

    with model(late) as (url, _):
        assert with_opinion(found(), Adviser(url, "m", timeout=0.3)) == found()
        assert not answered
        done.set()


def test_an_unreachable_model_is_no_opinion() -> None:
    assert with_opinion(found(), Adviser("http://127.0.0.1:9/v1", "m")) == found()


def test_the_command_asks_only_when_told_to(tmp_path: Path) -> None:
    log = tmp_path / "rank_0.err"
    log.write_text(TEXT)
    with model(lambda: '{"agrees": true, "words": "Look at the token."}') as (url, asked):
        aorta("attribute", "--json", log)
        assert not asked
        done = aorta("attribute", "--json", "--llm-url", url, log)
        assert done.json()["decision"]["advice"][-1] == {
            "kind": "opinion",
            "text": "Look at the token.",
        }
    assert aorta("attribute", "--llm-url", "file:///etc/passwd", log).exit_code == 2


@pytest.mark.xdist_group("attrsvc")
def test_the_service_decides_before_it_asks_a_model_and_tells_its_words_later(
    tmp_path: Path,
) -> None:
    may_answer = threading.Event()

    def slow() -> str:
        may_answer.wait(patience())
        return '{"agrees": true, "words": "Install it."}'

    jobs = [f"job-{number}" for number in range(8)]
    log = str(CORPUS / "import_error")
    with (
        model(slow) as (url, asked),
        running_service(
            CORPUS, tmp_path / "s.sqlite", "--llm-url", url, "--llm-timeout", str(patience())
        ) as service,
        service.client() as client,
    ):

        def answer(job: str, wait: float = 60) -> dict[str, Any]:
            where = f"/v1/cycles/{job}/{job}:0/decision"
            told: dict[str, Any] = client.get(where, params={"wait": wait}).json()
            return told

        def opinion_of(job: str) -> object:
            return answer(job)["opinion"]

        for job in jobs:
            body = {"job_id": job, "cycle_id": f"{job}:0", "agent": "a", "log_paths": [log]}
            assert client.post("/v1/cycles", json=body).status_code == 202
        before = {job: answer(job) for job in jobs}
        assert {told["decision"]["action"] for told in before.values()} == {"STOP"}
        assert {told["opinion"] for told in before.values()} == {None}
        wait_until(lambda: asked, "a question")
        may_answer.set()
        for job in jobs:
            wait_until(partial(opinion_of, job), "an opinion")
            told = answer(job)
            assert told["opinion"] == {"agrees": True, "words": "Install it."}
            assert told | {"opinion": None} == before[job]
        history = client.get("/v1/jobs/job-0").json()["cycles"]
        assert history[0]["opinion"]["words"] == "Install it."
