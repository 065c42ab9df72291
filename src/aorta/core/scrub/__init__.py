"""What may not leave this site, found and replaced. Text, documents and bytes in; the same, scrubbed, out.

A detector finds stretches of text; findings are settled into non-overlapping ones; each becomes a placeholder such as
`<PATH:1>`, the same for the same value throughout one `Scrubber`. Nothing here opens a file or writes a map back.
"""

from aorta.core.scrub.files import ScrubbedFile, is_text, learn_file, scrub_file
from aorta.core.scrub.patterns import split_patterns
from aorta.core.scrub.scrubber import Identity, Rules, Scrubbed, Scrubber, Span, count_groups
from aorta.core.scrub.structure import ScrubError, learn_document, scrub_document
from aorta.core.secrets.findings import PLACEHOLDER, Kind

__all__ = [
    "PLACEHOLDER",
    "Identity",
    "Kind",
    "Rules",
    "ScrubError",
    "Scrubbed",
    "ScrubbedFile",
    "Scrubber",
    "Span",
    "count_groups",
    "is_text",
    "learn_document",
    "learn_file",
    "scrub_document",
    "scrub_file",
    "split_patterns",
]
