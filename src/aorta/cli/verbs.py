"""The table of verbs: the one list that the help text and the lazy loader both read."""


class Verb:
    """A plain class: importing dataclasses would double the time `aorta --help` takes."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        self.name = name
        self.module = module  # holds a click command called `command`
        self.summary = summary


VERBS: tuple[Verb, ...] = (
    Verb("solve", "aorta.cli.solve", "All of this, unattended, from a failing command."),
    Verb("env", "aorta.cli.env", "What exactly is this machine?"),
    Verb("run", "aorta.cli.run", "Does it fail, how often, how fast?"),
    Verb("triage", "aorta.cli.triage", "Which mitigation, in which environment, makes it stop?"),
    Verb("reduce", "aorta.cli.reduce", "What is the smallest workload that still fails?"),
    Verb(
        "bisect",
        "aorta.cli.bisect",
        "Which container, and which commit of which package, broke it?",
    ),
    Verb("diverge", "aorta.cli.diverge", "At which operation do the numbers part?"),
    Verb("isolate", "aorta.cli.isolate", "Is it a node, a link, a rank or the software?"),
    Verb("bundle", "aorta.cli.bundle", "What may leave this site, and what is in it?"),
    Verb("launch", "aorta.cli.launch", "Should this crashed job restart, or stop?"),
    Verb("attribute", "aorta.cli.attribute", "What killed this cycle, and should it restart?"),
    Verb("attrsvc", "aorta.cli.attrsvc", "The same as a service for launchers."),
    Verb("mcp", "aorta.cli.mcp", "The same as tools for an assistant."),
    Verb("report", "aorta.cli.report", "Show me: one page from any run directory."),
    Verb("watch", "aorta.cli.watch", "Show me while it runs."),
    Verb("runs", "aorta.cli.runs", "Which runs are there, and what changed between two?"),
)


UNLISTED = {"jax-toolbox-triage": "aorta.cli.jax_toolbox_triage"}
"""Commands that are programs of their own names."""

OTHER_NAMES = {"sweep": "triage", "probe": "triage run"}
"""What ROCm's aorta calls them."""


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
