"""A candidate as a trial, and when its failure is the original's."""

import ast
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

from aorta.core.errors import UsageError
from aorta.core.failure import Failure, same_failure
from aorta.core.oracle import Classified, Deciding
from aorta.core.templates import template
from aorta.core.trial import Outcome, TrialEnd, Watch
from aorta.engine.rundir import write_atomically, writing
from aorta.reduce.experiment import DATA
from aorta.reduce.source.program import TraceFacts, read_facts
from aorta.reduce.source.search import Candidate
from aorta.reduce.source.tree import blocks_of, root_of, statement_at, tail_at

REPRO = "repro.py"
ORIGINAL = "original"
FACTS = "facts.jsonl"
PROGRAM = "program"
_CHECKS = (ast.Raise, ast.Assert)
_SHELL = re.compile(r"[|&;<>`()*?\n]")  # a variable is none: the program is seen to get its value


@dataclass(frozen=True)
class EntryScript:
    """Where in the words of a command the user's program stands, and its file."""

    words: tuple[str, ...]
    at: int
    file: str  # below the working directory
    is_module: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        """The command with the script in the program's place; its arguments are in the script."""
        return (*self.words[: self.at - self.is_module], REPRO)


def entry_of(command: str | Sequence[str], cwd: Path, named: str | None = None) -> EntryScript:
    """The program that a command runs: a `.py` file of the working directory, or `-m` a module."""
    if not isinstance(command, str) and tuple(command[:2]) == ("bash", "-c"):
        command = command[2]
    if isinstance(command, str) and _SHELL.search(command):
        raise UsageError("give the command as words, without a shell", where="workload.command")
    words = tuple(shlex.split(command) if isinstance(command, str) else command)
    for at, word in enumerate(words):
        path = (cwd / word).resolve()
        fits = named is None or path == (cwd / named).resolve()
        if word.endswith(".py") and path.is_file() and fits and path.is_relative_to(cwd.resolve()):
            return EntryScript(words, at, path.relative_to(cwd.resolve()).as_posix())
        place = word.replace(".", "/")
        for file in (f"{place}.py", f"{place}/__main__.py"):
            if at and words[at - 1] == "-m" and (cwd / file).is_file():
                return EntryScript(words, at, file, is_module=True)
    raise UsageError(
        f"found no Python file of {cwd} in the command, expected such as: python train.py",
        where="source",
    )


def lay_out(candidate: Candidate, sources: Sequence[Path], folder: Path) -> None:
    """The script, and beside it the files that it needs, each of the first folder that has it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / REPRO).write_text(candidate.text, encoding="utf-8")
    for name in candidate.beside:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(next(p for s in sources if (p := s / name).is_file()), target)


def keep_facts(trial_dir: Path, place: Path) -> None:
    """What the trial's hook wrote, kept at `place`: files that other axes had laid out for it are
    named as they lie beside a script, and lie in `data` beside `place`.
    """
    folder = (trial_dir / DATA).absolute()
    text = facts_file(trial_dir).read_text("utf-8", "replace").replace(f"{folder}/", "")
    data = place.parent / DATA
    with writing(data):
        place.parent.mkdir(parents=True, exist_ok=True)
        if not data.exists():
            shutil.copytree(folder, data, ignore=shutil.ignore_patterns(FACTS, PROGRAM))
    write_atomically(place, text)


def facts_file(trial_dir: Path) -> Path:
    return trial_dir / DATA / FACTS


@dataclass(frozen=True)
class FailingStatement:
    """The innermost statement of the user's on the stack, and what it was done to; of what two runs
    of the original differ in, nothing.
    """

    message: str = ""
    operation: str = ""  # what is called, subscripted or read; empty for a check of the user's own
    form: str = ""  # of the statement, whatever its variables are called
    operands: Sequence[str] = ()
    largest: int | None = None  # where an index was out of range: how far
    is_whole: bool = False  # nothing that a statement on the way reads was missing


def failing_statement(
    facts: TraceFacts, again: TraceFacts, sources: Callable[[str], str]
) -> FailingStatement:
    """By what the hook saw of a run and of a second one; `sources` brings the text of a file."""
    message = facts.message.partition("\n")[0] if facts.message == again.message else ""
    if not facts.frames:
        return FailingStatement(message)
    frame = facts.frames[-1]
    tree = ast.parse(sources(frame.file))
    failed = statement_at(tree, frame.line, frame.position)
    is_check = isinstance(failed, _CHECKS) and not facts.in_library
    operation = tail_at(tree, frame.position or ()) if not is_check else ""
    form = f"{'raise ' * is_check}{_form(failed)}" if failed is not None else ""
    is_whole = not any("undefined" in one.operands for one in facts.frames)
    other = again.frames[-1] if again.frames else replace(frame, operands=(), largest=None)
    operands = tuple((Counter(frame.operands) & Counter(other.operands)).elements())
    largest = frame.largest if other.largest == frame.largest else None
    return FailingStatement(message, operation, form, operands, largest, is_whole)


def _form(node: ast.stmt) -> str:
    """What a statement computes, apart from its blocks and from how its variables are called."""
    inside = {id(one) for block in blocks_of(node) for one in block}
    parts = [part for part in ast.iter_child_nodes(node) if id(part) not in inside]
    values = [part for part in parts if not isinstance(getattr(part, "ctx", None), ast.Store)]
    return " ".join(ast.unparse(_Nameless().visit(deepcopy(part))) for part in values)


class _Nameless(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("_", node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        is_chain = isinstance(root_of(node), ast.Name)
        return ast.Name("_", node.ctx) if is_chain else self.generic_visit(node)


@dataclass(frozen=True)
class SourceOracle:
    """A candidate fails like the original if the exception's type, its message, the library's
    function that raised it, and the kind of statement of the user's are the same. One that only
    raises the same words itself is another failure.
    """

    inner: Deciding
    known: Failure
    known_statement: FailingStatement

    def watch(self) -> Watch:
        return self.inner.watch()

    def judge_end(self, end: TrialEnd) -> Classified | None:
        found = self.inner.judge_end(end)
        if found is None or found.outcome is not Outcome.REPRODUCED or found.is_named:
            return found
        why = self._another(end, found.failure)
        return replace(found, outcome=Outcome.OTHER, why=why) if why else found

    def _another(self, end: TrialEnd, failure: Failure | None) -> str:
        """Why it is not the same failure; empty where it is."""
        if failure is None or not self.known.causes:
            same = failure is not None and same_failure(self.known, failure)
            return "" if same else "another failure"
        known = self.known.causes[0].first
        text = f"{end.stdout.tail}\n{end.stderr.tail}"
        messages = {known.message, template(known.message)}
        if not any(
            (known.type, known.within) == (one.first.type, one.first.within)
            and one.first.message in messages
            for one in failure.causes
        ):
            return f"another failure: {failure.text}"
        if self.known_statement.message not in text:
            return "another failure: its message has other numbers or names"
        return self._other_statement(end.stderr.path.parent)

    def _other_statement(self, trial_dir: Path) -> str:
        """By what the hook wrote; nothing where it could not, as in a worker of a pool."""
        facts = read_facts(facts_file(trial_dir))
        if not facts.frames:
            return ""
        laid, known = trial_dir / DATA / PROGRAM, self.known_statement
        now = failing_statement(facts, facts, lambda name: (laid / name).read_text("utf-8"))
        if known.operation and now.operation != known.operation:
            return f"another operation raised it: {now.operation}"
        if now.form != known.form:
            return f"another statement raised it: {now.form}"
        if Counter(known.operands) - Counter(now.operands):
            return f"the operation has other operands: {', '.join(now.operands)}"
        if known.largest is not None and (now.largest or 0) > known.largest:
            return f"an index is further out of range: {now.largest}, not {known.largest}"
        if known.is_whole and not now.is_whole:
            return "a name on the way to the failure is missing"
        return ""
