"""`SHIP.md` of a bundle: what is inside, what was removed, what to read. The run's own words stay
above it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from aorta.bundle.layouts import Layout
from aorta.bundle.manifest import Checked
from aorta.core.stats import counted
from aorta.scrub.scrubber import LOOKED_FOR

SHIP = "SHIP.md"
_BEGIN, _END = "<!-- aorta bundle: begin -->", "<!-- aorta bundle: end -->"
_SECTION = re.compile(rf"\n*{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", re.DOTALL)
_WORDS = {
    "paths": "private paths, as `<PATH:n>`",
    "addresses": "addresses and host names, as `<IPV4:n>`, `<IPV6:n>`, `<MAC:n>`, `<EMAIL:n>`, "
    "`<HOST:n>`",
    "secrets": "secrets, as `<SECRET:n>`",
    "patterns": "matches of the site's own patterns, as `<TEXT:n>`",
    "names": "user names, as `<USER:n>`",
}


LOGS_ONLY = (
    "The program that failed is not in this bundle: what is in it can be read; a recipe in it runs "
    "where the program lies."
)
UNKNOWN = (
    "- names of models, projects, customers and data sets that look like ordinary words",
    "- names of people in free text, and what a sentence gives away",
    "- what the source, the data and the shapes themselves tell about the work",
    "- a secret without a shape that stands behind no name that announces one",
    "- a known secret of fewer than six characters, where nothing announces it",
    "- what a picture, a sound or another binary file shows",
    "",
    "Name such words with `--scrub`, and look at everything with `--review`.",
)


def updated_ship(
    before: str | None,
    *,
    ticket: str,
    layout: Layout,
    files: Sequence[str],
    removed: Mapping[str, int],
    left_out: int,
    unscrubbed: Sequence[str],
    cut: Mapping[str, int],
    logs_only: bool,
    checked: Checked | None,
) -> str:
    """The same text for the same content, however often it is updated."""
    own = _SECTION.sub("\n", before).strip("\n") if before else f"# {ticket}"
    parts = [
        own,
        "",
        _BEGIN,
        "## This bundle",
        "",
        f"Ticket {ticket}, made by `aorta {layout.verb}`.",
    ]
    parts += ["", LOGS_ONLY] if logs_only else []
    parts += ["", _rehearsed(checked)] if checked or layout.verb == "reduce" else []
    parts += ["", "### Read first", ""]
    parts += [f"- `{path}`" for path in layout.reads if path in files] or ["- `manifest.json`"]
    parts += ["", "### Inside", ""]
    parts += [
        f"- `{folder}`: {counted(count, 'file')}" for folder, count in _by_folder(files).items()
    ]
    parts += ["", "### Removed", ""]
    parts += [f"- {count} {_WORDS[group]}" for group, count in removed.items() if count]
    parts += [] if any(removed.values()) else ["- nothing had to be replaced"]
    parts += (
        [f"- {counted(left_out, 'file')} of the run directory that a bundle does not carry"]
        if left_out
        else []
    )
    parts += [f"- {size} bytes from the middle of `{path}`" for path, size in cut.items()]
    parts += [
        "",
        "The same value has the same placeholder everywhere; in file names it reads `HOST-1`.",
    ]
    parts += ["No list of the removed values exists. `manifest.json` counts them file by file."]
    parts += ["Only this archive was scrubbed so, not the directory that it was made from."]
    parts += ["", "### What was looked for", "", *(f"- {line}" for line in LOOKED_FOR)]
    parts += ["- values of the site's secret variables, wherever and however they are written"]
    parts += ["", "### What no scrubbing can know", "", *UNKNOWN]
    if unscrubbed:
        parts += ["", "### Not scrubbed: binary files that the site lets pass", ""]
        parts += [f"- `{path}`" for path in unscrubbed]
    parts += ["", _END, ""]
    return "\n".join(parts)


def _rehearsed(checked: Checked | None) -> str:
    if checked is None:
        return "The reproducer was not run from this bundle."
    how = "Unpacked into an empty directory, with another home and user name, the reproducer"
    if checked.reproduces:
        return f"{how} failed the same way {checked.reproduced} of {checked.of} times."
    return f"{how} did **not** fail the same way ({checked.of} runs; the last: `{checked.why}`)."


def _by_folder(files: Sequence[str]) -> Counter[str]:
    return Counter(path.split("/")[0] + "/" if "/" in path else path for path in files)
