"""The table of verbs: the one list that the help text and the lazy loader both read."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    name: str
    module: str  # holds a click command called `command`
    summary: str


VERBS: tuple[Verb, ...] = (
    Verb("env", "aorta.cli.env", "What exactly is this machine?"),
    Verb("run", "aorta.cli.run", "Does it fail, how often, how fast?"),
    Verb("bisect", "aorta.cli.bisect", "Which container, and which commit of which package, broke it?"),
)


def top_help() -> str:
    width = max(len(verb.name) for verb in VERBS)
    rows = "\n".join(f"  {verb.name:<{width}}  {verb.summary}" for verb in VERBS)
    return (
        "Usage: aorta [--version] [--help] VERB ...\n\n"
        "  Takes a training job that fails and brings back what failed, why, and a\n"
        "  reproducer small enough to ship.\n\n"
        f"Verbs:\n{rows}\n\n"
        "  aorta VERB --help explains a verb and its exit codes. Nothing leaves this machine.\n"
    )
