"""What failed, and whether two failures are the same. Every test is named by what it shows; the
figures over many strangers' messages are `python -m benchmarks identity`.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.failure import (
    WORKLOAD,
    Failure,
    failure_of,
    learned,
    named_failure,
    same_failure,
)
from aorta.core.templates import common, covers, template
from aorta.core.trial import Ended, StreamEnd, TrialEnd


def ended(stderr: str = "", stdout: str = "", **how: object) -> Failure:
    out, err = (StreamEnd(Path("none"), tail=text) for text in (stdout, stderr))
    return failure_of(TrialEnd("t", out, err, **(how or {"exit_code": 1})))  # type: ignore[arg-type]


def raised(words: str, *places: str, source: str = "") -> str:
    """A traceback; a place is `file.py:function`."""
    frames, said = "", f"raise {words.partition(':')[0]}(reason)"
    for place in places or ("train.py:step",):
        file, _, function = place.partition(":")
        frames += f'  File "/w/{file}", line {len(words)}, in {function}\n    {source or said}\n'
    return f"Traceback (most recent call last):\n{frames}{words}\n"


NAN, SHORT = "FloatingPointError: loss is nan", "IndexError: no rows left"
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
CALLED = raised(
    "subprocess.CalledProcessError: Command '['python', '/tmp/a/b.py']' returned non-zero exit "
    "status 1.",
    "launch.py:main",
)


def test_a_failure_survives_its_json() -> None:
    for failure in (
        ended(raised(NAN) + HANDLING + raised(SHORT, "train.py:cleanup")),
        ended("[rank1]: " + raised(SHORT).replace("\n", "\n[rank1]: ")),
        ended("the loss went to infinity\n"),
        ended(signal=9, out_of_memory=True),
        ended(hung=True),
    ):
        again = Failure.from_json(failure.to_json())
        assert again == failure
        assert same_failure(again, failure)


def test_the_json_has_the_keys_of_the_contract() -> None:
    said = ended(raised("ValueError: bad shard 17 at 0x7f00aa")).to_json()
    assert said["type"] == "ValueError"
    assert said["frames"] == ["train.py:step"]
    assert said["message"] == "bad shard <*> at <*>"
    assert said["ended"] == {"exit_code": 1, "signal": None, "oom_killed": False, "hang": False}
    assert said["class"] is None
    alone = {key: said[key] for key in ("type", "frames", "message", "ended", "class")}
    assert same_failure(Failure.from_json(alone), Failure.from_json(said))


@pytest.mark.parametrize(
    "output",
    [
        raised(NAN) + CALLED,
        CALLED + raised(NAN),
        raised(NAN) + HANDLING + raised("OSError: scratch is gone", "train.py:cleanup"),
        raised(NAN) + CAUSE + raised("RuntimeError: run failed", "train.py:main"),
        raised(NAN) + "Exception ignored in atexit callback:\n" + raised(SHORT, "x.py:bye"),
        "ERROR retrying\n" + raised(SHORT, "net.py:get") + raised(NAN),
        raised("BrokenPipeError: [Errno 32] Broken pipe", "net.py:send") + raised(NAN),
        raised(NAN) + "make: *** [Makefile:3: train] Error 1\n",
        raised(NAN) + "srun: error: node7: task 3: Exited with exit code 1\n",
    ],
)
def test_the_first_cause_counts_and_what_follows_from_it_does_not(output: str) -> None:
    found = ended(output)
    assert found.causes[0].first.type == "FloatingPointError"
    assert same_failure(found, ended(raised(NAN)))
    assert not same_failure(found, ended(raised(SHORT, "data.py:read")))


def test_the_order_in_which_two_ranks_write_makes_no_difference() -> None:
    ranks = [
        "".join(f"[rank{rank}]: {line}\n" for line in raised(words, place).splitlines())
        for rank, (words, place) in enumerate([(NAN, "a.py:step"), (SHORT, "b.py:read")])
    ]
    one, other = ended(ranks[0] + ranks[1]), ended(ranks[1] + ranks[0])
    assert one == other
    assert same_failure(one, ended(ranks[1]))
    assert same_failure(one, ended(ranks[0]))


def test_a_wrapper_alone_is_the_failure_without_the_path_of_its_command() -> None:
    found = ended(CALLED)
    assert found.causes[0].first.type == "CalledProcessError"
    assert "b.py" not in str(found.to_json())
    assert same_failure(found, ended(CALLED.replace("/tmp/a/b.py", "/home/x/c.py")))
    died = ended(CALLED.replace("returned non-zero exit status 1.", "died with <Signals.SIGKILL>."))
    assert not same_failure(found, died)


def test_behind_a_wrapper_the_words_of_the_command_tell_its_failures_apart() -> None:
    one, other = ended("loss went up\n" + CALLED), ended("nothing to read\n" + CALLED)
    assert same_failure(one, ended("loss went up\n" + CALLED))
    assert not same_failure(one, other)


def test_a_command_that_says_nothing_is_told_by_its_call_and_not_by_counts_before() -> None:
    one = ended(CALLED, "step 7\nmean 0.4\n")
    assert one.causes[0].first.type == "CalledProcessError"
    assert same_failure(one, ended(CALLED, "step 8\nmean 0.3\n"))
    assert same_failure(one, ended(CALLED))
    assert not same_failure(one, ended(CALLED.replace("status 1", "status 2"), "mean 0.4\n"))
    assert not same_failure(one, ended(CALLED, "error: no rows left\n"))
    began, died = ended("began\n" + CALLED), CALLED.replace("status 1", "status 2")
    assert not same_failure(began, ended("began\n" + died))
    assert not same_failure(one, ended("usage: train.py FILE\n", "mean 0.4\n"))


def test_a_failing_test_is_told_by_what_failed_and_not_by_the_count_of_tests() -> None:
    def of_pytest(error: str, count: str) -> Failure:
        text = f"E       {error}\n\ntest_a.py:6: {error.partition(':')[0]}\n"
        return ended(
            stdout=f"{text}FAILED test_a.py::test_sum - {error}\n=== {count} in 0.41s ===\n"
        )

    one = of_pytest("AssertionError: sum is off", "1 failed, 1 passed")
    assert one.text == "exit 1 | FAILED test_a.py::test_sum - AssertionError: sum is off"
    assert same_failure(one, of_pytest("AssertionError: sum is off", "1 failed"))
    assert not same_failure(one, of_pytest("KeyError: 'shard'", "1 failed, 1 passed"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (raised(NAN), raised(NAN, "train.py:evaluate")),
        (raised("ValueError: x is odd"), raised("TypeError: x is odd")),
        (raised("ValueError: loss is nan"), raised("ValueError: too few rows to go on")),
        ("the loss went to infinity\n", "too little to learn from\n"),
        ("Verlust ist unendlich\n", "zu wenig Daten\n"),
        (raised("KeyError: 'a'", source="x = d['a']"), raised("KeyError: 'b'", source="d['b']")),
    ],
)
def test_other_words_places_and_types_are_another_failure(one: str, other: str) -> None:
    found = same_failure(ended(one), ended(other))
    assert not found
    assert found.why


def test_the_last_words_of_stderr_name_a_failure_before_a_number_on_stdout() -> None:
    gave_up = "giving up at step 512 of 900\n"
    found = ended(gave_up, "epoch 3 of 10\nloss: 0.8123\n")
    assert found.text == "exit 1 | giving up at step <*> of <*>"
    assert same_failure(found, ended(gave_up, "epoch 7 of 10\nloss: 1.204\n"))
    assert ended("", "loss: 0.8123\n").text == "exit 1 | loss: <*>"
    told = ended("see the log\n", "assertion failed: rows are sorted\nloss: 0.8123\n")
    assert told.text == "exit 1 | assertion failed: rows are sorted"


def test_an_exit_status_alone_makes_no_two_failures_the_same() -> None:
    assert not same_failure(
        ended("free(): invalid pointer\n", signal=6), ended("too few rows\n", exit_code=134)
    )
    assert same_failure(ended(signal=6), ended(exit_code=134))
    assert not same_failure(ended(exit_code=1), ended("usage: t.py ROWS\n", exit_code=1))
    assert ended(exit_code=3).is_silent
    assert not ended(signal=11).is_silent


def test_an_end_without_the_error_is_another_one_though_both_said_how_they_began() -> None:
    began = "run 17 started, 60 rows\n"
    said = ended("ERROR: ledger 4c1e out of balance by 78003\n", began)
    twice = learned(said, ended("ERROR: ledger 77ab out of balance by 512\n", began))
    assert twice is not None
    assert same_failure(twice, ended("ERROR: ledger 90fd out of balance by 9\n", began))
    assert not same_failure(twice, ended("", began))
    assert not same_failure(said, ended("", began))
    assert same_failure(ended("", f"{began}saving\n"), ended("", began))  # neither says an error


def test_of_tasks_that_srun_ended_the_first_that_failed_counts() -> None:
    first = "srun: error: n2: task 1: Exited with exit code 7\n"
    alone = ended("fell off the bus\n" + first, exit_code=7)
    later = ended(f"fell off the bus\n{first}srun: error: n1: task 0: Terminated\n", exit_code=143)
    assert later.text == "exit 7 | fell off the bus"
    assert same_failure(alone, later)


def test_memory_runs_out_wherever_the_next_request_for_it_stands() -> None:
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 0 has {} free."
    one = ended(raised(words.format("32.00 MiB", "1.25 GiB"), "model.py:attention"))
    other = ended(raised(words.format("2.00 GiB", "20.00 MiB"), "model.py:mlp"))
    assert one.failure_class == "device_oom"
    assert same_failure(one, other)
    shapes = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x32)"
    assert not same_failure(one, ended(raised(shapes, "model.py:attention")))


_NO_ROOM = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate {} bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (_NO_ROOM.format(4294967296), _NO_ROOM.format(786432000)),
        ("MemoryError", "MemoryError"),
        ("OSError: [Errno 12] Cannot allocate memory", "MemoryError"),
        (
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array",
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 64.0 MiB for an array",
        ),
    ],
)
def test_memory_of_the_host_runs_out_wherever_the_next_request_for_it_stands(
    first: str, later: str
) -> None:
    forward = ended(raised(first, "train.py:training_step"))
    assert forward.failure_class == "host_oom"
    assert same_failure(forward, ended(raised(later, "train.py:backward")))
    shapes = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x32)"
    assert not same_failure(forward, ended(raised(shapes, "train.py:training_step")))


def test_a_memory_error_in_the_program_s_own_words_has_its_place() -> None:
    one = ended(raised("MemoryError: pool of slots is used up", "train.py:step"))
    other = ended(raised("MemoryError: pool of slots is used up", "train.py:load"))
    assert not same_failure(one, other)


def test_what_two_failures_of_one_configuration_do_not_share_varies() -> None:
    source = "raise KeyError(f'no shard {name} in queue')"
    one = ended(raised("KeyError: no shard left in queue", source=source))
    two = ended(raised("KeyError: no shard right in queue", source=source))
    both = learned(one, two)
    assert both is not None
    assert both.text == "exit 1 | train.py:step > KeyError: no shard <*> in queue"
    assert both.to_json()["seen"] == 2
    assert same_failure(both, ended(raised("KeyError: no shard up in queue", source=source)))
    assert learned(one, ended(raised("KeyError: it is all quite different now"))) is None


def test_of_words_alone_those_are_learned_that_failures_share_and_clean_runs_lack() -> None:
    one = ended("error: cannot bind port 80\nerror: retry 1 failed\nstopped early\n")
    two = ended("error: cannot bind port 81\nstopped early\n")
    both = learned(one, two)
    assert both is not None
    assert both.words == ("error: cannot bind port <*>", "stopped early")
    assert both.without({"stopped early"}).words == ("error: cannot bind port <*>",)


def test_one_raise_statement_may_say_anything_where_it_was_seen_to() -> None:
    one, two = (ended(raised(f"ValueError: {word}", source="raise ValueError(x)")) for word in "ab")
    assert not same_failure(one, two)
    both = learned(one, two)
    assert both is not None
    assert same_failure(both, ended(raised("ValueError: c", source="raise ValueError(x)")))


def test_recursion_and_two_processes_that_write_line_by_line_are_folded() -> None:
    frame = '  File "t.py", line 3, in {}\n    {}()\n'
    head = "Traceback (most recent call last):\n"
    deep = head + (frame.format("f", "g") + frame.format("g", "f")) * 9 + "RecursionError: deep\n"
    less = head + (frame.format("f", "g") + frame.format("g", "f")) * 5 + "RecursionError: deep\n"
    assert same_failure(ended(deep), ended(less))
    once = head + frame.format("main", "step") + frame.format("step", "go") + "ValueError: x 3\n"
    woven = "".join(line + "\n" + line + "\n" for line in once.splitlines())
    assert same_failure(ended(once), ended(woven))


def test_a_hang_is_the_same_as_a_hang_and_as_nothing_else() -> None:
    assert same_failure(ended("step 3\n", hung=True), ended("step 9\n", hung=True))
    assert not same_failure(ended("step 3\n", hung=True), ended("step 3\n", exit_code=1))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Tried to allocate 32.00 MiB", "Tried to allocate <*>"),
        ("[rank3]: took 1m 30s, 4.5 % left", "took <*> left"),
        ("bad keys {'a', 'b'} in [1, 2, 3]", "bad keys <*> in <*>"),
        ("loss tensor([0.1, 2.0], device='cuda:0')", "loss <*>"),
        ("<Net object at 0x7f0012> on node-17.local", "<Net object at <*>> on <*>"),
        ("[Errno 28] No space left", "[Errno 28] No space left"),
        ("in conv2d with float16", "in conv2d with float16"),
        ("returned non-zero exit status 3", "returned non-zero exit status 3"),
    ],
)
def test_accidents_are_slots_and_names_and_statuses_are_not(line: str, expected: str) -> None:
    assert template(line) == expected


words = st.lists(st.sampled_from(("rank", "lost", "peer", "at", "step", "left")), min_size=1)


@given(words, words)
def test_what_two_lines_have_in_common_covers_both(one: list[str], other: list[str]) -> None:
    mine, theirs = " ".join(one), " ".join(other)
    shared = common(mine, theirs)
    if shared is not None:
        assert covers(shared, mine)
        assert covers(shared, theirs)


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_output_can_be_read_and_is_the_same_as_itself(stderr: str, stdout: str) -> None:
    assert same_failure(ended(stderr, stdout), ended(stderr, stdout))


def test_how_it_ended_in_words() -> None:
    assert [Ended(1).text, Ended(139).text, Ended(signal=9).text, Ended(hang=True).text] == [
        "exit 1",
        "SIGSEGV",
        "SIGKILL",
        "hang",
    ]


def test_two_lines_of_one_function_are_two_failures_but_not_in_two_versions_of_it() -> None:
    words = "ZeroDivisionError: division by zero"
    one = ended(raised(words, "m.py:score", source="accuracy = right / seen"))
    other = ended(raised(words, "m.py:score", source="loss = total / batches"))
    assert same_failure(one, one)
    assert not same_failure(one, other)
    assert same_failure(one.in_any_version(), other)


def test_a_failing_device_reports_at_whichever_call_is_the_next() -> None:
    words = "torch.AcceleratorError: CUDA error: unspecified launch failure"
    one, other = (ended(raised(words, source=call)) for call in ("x.cpu()", "loss.backward()"))
    assert same_failure(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\tsize mismatch for wte.weight: got 3", '\tMissing key(s) in state_dict: "ln.bias".'),
        ("model.width\n  Field required", "model.depth\n  Input should be greater than 0"),
    ],
)
def test_a_message_that_announces_more_is_told_by_its_next_lines(one: str, other: str) -> None:
    head = "ValueError: 2 validation errors for Model" if "\n" in one else "ValueError: Error(s):"
    assert same_failure(ended(raised(f"{head}\n{one}")), ended(raised(f"{head}\n{one}")))
    assert not same_failure(ended(raised(f"{head}\n{one}")), ended(raised(f"{head}\n{other}")))


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        (
            "AttributeError: 'NoneType' object has no attribute 'shape'",
            "AttributeError: 'Batch' object has no attribute 'device'",
            "return batch.shape, batch.device",
        ),
        (
            "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
            "TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'",
            "total = total + row",
        ),
    ],
)
def test_names_of_the_code_in_the_interpreters_words_are_no_accident(
    one: str, other: str, line: str
) -> None:
    first, second = (ended(raised(words, source=line)) for words in (one, other))
    assert not same_failure(first, second)
    assert same_failure(first, ended(raised(one, source=line)))
    both = learned(first, second)  # seen in one configuration, they do vary
    assert both is not None
    assert same_failure(both, second)


def test_a_library_in_c_raises_for_many_reasons_from_one_line() -> None:
    def asked(words: str) -> Failure:
        query = "return db.execute(query).fetchall()"
        return ended(raised(f"sqlite3.OperationalError: {words}", source=query))

    known = learned(asked("no such column: step"), asked("no such column: step"))
    assert known is not None
    assert not same_failure(known, asked("no such table: metrics"))


def after(*outputs: str) -> Failure:
    """What failures of one configuration taught."""
    known, *more = [ended(output) for output in outputs]
    for failure in more:
        known = learned(known, failure) or known
    return known


KEY = "row[key] for row in rows"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            raised("KeyError: 'labels'", "data.py:collate", source=KEY),
            raised("KeyError: 'input_ids'", "data.py:collate", source=KEY),
        ),
        ("Key 'dataset' is not in struct: error\n", "Key 'scheduler' is not in struct: error\n"),
    ],
)
def test_what_three_failures_quote_alike_is_no_accident(one: str, other: str) -> None:
    assert same_failure(after(one), ended(other))
    assert not same_failure(after(one, one, one), ended(other))
    assert same_failure(after(one, other, one), ended(other))


def test_what_a_failed_assertion_quotes_is_code() -> None:
    one, two = (f"prog: a.cpp:4: advance: Assertion `{n}' failed.\n" for n in ("n >= 0", "n < cap"))
    assert not same_failure(ended(one), ended(two))
    assert same_failure(ended(one), ended(one.replace("cpp:4", "cpp:9")))


def test_a_library_that_is_called_in_two_lines_raises_two_failures() -> None:
    inside = '  File "/v/site-packages/torch/linear.py", line 134, in forward\n'
    said = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x14 and 8x2)"
    one, two = (
        f'Traceback (most recent call last):\n  File "/w/net.py", line {number}, in forward\n'
        f"    return self.{layer}(x)\n{inside}    return F.linear(input)\n{said}\n"
        for number, layer in ((7, "fc1"), (8, "fc2"))
    )
    assert not same_failure(ended(one), ended(two))
    assert same_failure(ended(one), ended(one.replace("4x14", "2x33")))
    assert same_failure(ended(one).in_any_version(), ended(two).in_any_version())


def test_a_line_of_a_library_is_another_in_its_next_version() -> None:
    def failed(line: str) -> Failure:
        return ended(
            'Traceback (most recent call last):\n  File "/w/run.py", line 9, in train\n'
            "    model(ids)\n"
            f'  File "/v/site-packages/transformers/gpt.py", line 80, in forward\n    {line}\n'
            "IndexError: index out of range in self\n"
        )

    assert same_failure(failed("x = self.wte(ids)"), failed("x = self.tokens(ids)"))


def test_a_stack_runs_out_wherever_the_next_call_stands() -> None:
    def recursed(*functions: str) -> str:
        said = "RecursionError: maximum recursion depth exceeded while calling a Python object"
        return raised(said, "walk.py:<module>", *(f"walk.py:{name}" for name in functions * 9))

    one = ended(recursed("visit", "visit_list"))
    assert same_failure(one, ended(recursed("visit_dict", "visit")))
    assert not same_failure(one, ended(recursed("fold", "fold_list")))


def test_codes_of_a_logger_tell_failures_apart() -> None:
    def logged(code: str) -> str:
        return f'{{"severity": "ERROR", "message": "request 5531 failed", "code": {code}}}\n'

    assert same_failure(ended(logged('"E1017"')), ended(logged('"E1017"').replace("5531", "77")))
    assert not same_failure(ended(logged('"E1017"')), ended(logged('"E1023"')))
    assert not same_failure(ended(logged("17")), ended(logged("23")))


def test_words_with_a_slash_between_them_are_no_folder() -> None:
    one, other = (template(f"ValueError: bad ratio '{ratio}'") for ratio in ("p/q", "z/q"))
    assert one != other
    assert template("cannot open data/rows.csv") == template("cannot open /srv/job/rows.csv")


@pytest.mark.parametrize("before", ["", raised(NAN), "INFO: step 3\n"])
def test_what_a_workload_calls_its_failure_its_own_process_says_too(before: str) -> None:
    hint = "WARNING: the loss of step 17 is nan"
    named, alone = named_failure(WORKLOAD, hint), ended(f"{before}aorta: failed: {hint}\n")
    assert same_failure(named, alone)
    assert same_failure(alone, named)
    assert learned(named, alone) == named
    assert not same_failure(named, ended(f"{before}aorta: failed: no rank answered\n"))
    assert learned(named_failure(WORKLOAD, "no rank answered"), alone) is None
