"""The command line, one thin module a verb; here the table of verbs, for help and lazy loader."""

VERBS = {
    "solve": "All of this, unattended, from a failing command.",
    "env": "What exactly is this machine?",
    "run": "Does it fail, how often, how fast?",
    "triage": "Which mitigation, in which environment, makes it stop?",
    "reduce": "What is the smallest workload that still fails?",
    "bisect": "Which container, and which commit of which package, broke it?",
    "diverge": "At which operation do the numbers part?",
    "isolate": "Is it a node, a link, a rank or the software?",
    "bundle": "What may leave this site, and what is in it?",
    "launch": "Should this crashed job restart, or stop?",
    "attribute": "What killed this cycle, and should it restart?",
    "attrsvc": "The same as a service for launchers.",
    "mcp": "The same as tools for an assistant.",
    "report": "Show me: one page from any run directory.",
}
"""What each answers."""

COMMANDS = {
    **{verb: f"{verb}:command" for verb in VERBS},
    **{verb: f"attribution:{verb}" for verb in ("attribute", "attrsvc", "mcp")},
    "jax-toolbox-triage": "jax_toolbox_triage:command",  # a program of its own name
}
"""The module and the click command of each."""

OTHER_NAMES = {"sweep": "triage", "probe": "triage run"}
"""What ROCm's aorta calls them."""


def top_help() -> str:
    width = max(map(len, VERBS))
    rows = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in VERBS.items())
    return (
        "Usage: aorta [--version] [--help] VERB ...\n\n"
        "  Takes a training job that fails and brings back what failed, why, and a\n"
        "  reproducer small enough to ship.\n\n"
        f"Verbs:\n{rows}\n\n"
        "  aorta VERB --help explains a verb and its exit codes. Nothing leaves this machine.\n"
    )
