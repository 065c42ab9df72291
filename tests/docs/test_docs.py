"""Every command line in the documentation and the help texts names verbs, options and mitigations
that exist.
"""

import re
import shlex
from collections.abc import Iterator
from functools import cache

import click
import pytest

from aorta.cli import VERBS
from aorta.cli.app import app
from aorta.registry.mitigations import load_mitigations
from support.aorta_cli import ROOT, aorta

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.sh")])
pytestmark = pytest.mark.xdist_group("docs")  # where torchrun is asked for its options once
_COMMAND_LINE = re.compile(r"^\s*(?:\$ )?aorta ([a-z]+(?: .*)?)$")


def command_lines(text: str) -> Iterator[str]:
    """What follows `aorta` in code blocks, in backticks and in indented examples; continued lines
    are joined.
    """
    joined = text.replace("\\\n", " ")
    in_block = False
    for line in joined.splitlines():
        if line.startswith("```"):
            in_block = not in_block
            continue
        if in_block and (found := _COMMAND_LINE.search(line)):
            yield found[1].split("#")[0]
        elif not in_block:
            yield from (m[1] for m in re.finditer(r"`aorta ([a-z][^`]*)`", line))


def help_examples() -> Iterator[str]:
    for path, command in every_command(app, ()):
        for line in (command.help or "").replace("\\\n", " ").splitlines():
            if line.strip().startswith("aorta "):
                yield line.strip().removeprefix("aorta ")
        assert command.help, f"aorta {' '.join(path)} has no help"


def every_command(
    group: click.Group, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


def unknown_words(line: str) -> list[str]:
    """The verbs and options of this command line that do not exist."""
    words = shlex.split(re.sub(r"\.\.\.|…|\[|\]|\|", " ", line))
    if "--" in words:
        words = words[: words.index("--")]
    command = app.get_command(click.Context(app), words[0])
    if command is None:
        return [words[0]]
    if isinstance(command, click.Group) and len(words) > 1:
        command = command.get_command(click.Context(command), words[1]) or command
    if words[0] == "launch":
        return unknown_to_torchrun(words[1:])
    given = [word.split("=")[0] for word in words[1:] if re.match(r"--?[a-zA-Z]", word)]
    return [option for option in given if option not in options_of(command)]


def unknown_to_torchrun(words: list[str]) -> list[str]:
    """`launch` takes torchrun's options and its own; behind the script stand the script's."""
    known = options_of_launch()
    script = next((i for i, word in enumerate(words) if word.endswith(".py")), len(words))
    return [word for word in words[:script] if word.startswith("-") and word not in known]


@cache
def options_of_launch() -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", aorta("launch", "--help").stdout))


def options_of(command: click.Command) -> set[str]:
    """Its own; a group that runs a command of its own when none is named takes that one's."""
    own = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
    if isinstance(command, click.Group):
        own.update(*(options_of(inner) for _, inner in every_command(command, ())))
    return own


def test_every_command_line_in_a_document_exists() -> None:
    for document in DOCUMENTS:
        lines = command_lines(document.read_text())
        wrong = {line: bad for line in lines if (bad := unknown_words(line))}
        assert not wrong, document


def test_every_example_in_a_help_text_exists() -> None:
    wrong = {line: bad for line in help_examples() if (bad := unknown_words(line))}
    assert not wrong


def test_every_mitigation_in_an_example_exists() -> None:
    known = set(load_mitigations())
    texts = [*help_examples(), *(line for d in DOCUMENTS for line in command_lines(d.read_text()))]
    named = {
        name
        for text in texts
        if "mitigations-file" not in text
        for found in re.finditer(r"--mitigations[ =](\S+)", text)
        for name in found[1].split(",")
    }
    assert named <= known


def test_the_readme_names_every_verb() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [verb for verb in VERBS if f"aorta {verb}" not in readme] == []
