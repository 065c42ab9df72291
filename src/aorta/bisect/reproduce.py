"""`reproduce`: one side of the answer as one command to paste. A shell of its own, so that nothing
it sets stays, which removes what it made. Values of variables stand in it, those of secrets do not.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aorta.bisect.package import export_lines
from aorta.bisect.trials import ProbedCommand
from aorta.scrub.secrets import safe_value


def in_shell(lines: Sequence[str], words: Sequence[str], tidy: str = "") -> list[str]:
    """The words of a command behind shell lines; `tidy` is done however that ends."""
    traps = [f"trap {shlex.quote(tidy)} EXIT", "trap 'exit 130' INT TERM"] if tidy else []
    if not (traps or lines):
        return list(words)
    return ["sh", "-c", "\n".join(["set -e", *traps, *lines, '"$@"']), "sh", *words]


def on_this_machine(lines: Sequence[str], command: ProbedCommand, tidy: str = "") -> str:
    """The lines find `$place`, a directory that is removed at the end."""
    own = own_places('"$place"/output', command)
    begin = ['place=$(mktemp -d) && mkdir "$place"/output']
    begin += [f"export {name}={value}" for name, value in own.items()]
    tidy = "\n".join(filter(None, (tidy, 'rm -rf "$place"')))
    return shlex.join(in_shell([*begin, *lines], shown_words(command), tidy))


def exports(variables: Mapping[str, str | None]) -> Iterator[str]:
    """None: not set. A secret has to be there already, or the shell says so and ends."""
    for name, value in variables.items():
        if value is None:
            yield f"unset {name}"
        elif is_secret(name, value):
            yield f': "${{{name}:?may be a secret and is not written here: export it first}}"'
        else:
            yield from export_lines({name: value})


def is_secret(name: str, value: str) -> bool:
    return safe_value(name, value) != value


def own_places(directory: str, command: ProbedCommand) -> dict[str, str]:
    """What every trial is told of where to write."""
    places = {"AORTA_TRIAL_DIR": directory}
    if file := command.oracle.watch().json_file:
        places["AORTA_METRIC_FILE"] = f"{directory}/{shlex.quote(Path(file).name)}"
    return places


def shown_words(command: ProbedCommand) -> list[str]:
    """The command; a number that it leaves in a file is shown."""
    file = command.oracle.watch().json_file
    if file is None:
        return list(command.command)
    show = f'"$@" || exit; cat "$AORTA_METRIC_FILE" 2>/dev/null || cat {shlex.quote(file)}'
    return ["sh", "-c", show, "sh", *command.command]
