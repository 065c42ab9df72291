"""What is told to the process that makes one version set on this host; `checkout` is that
process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TreeJob:
    """One checkout: `tree` of `repository` at `sha`; `build` runs in it. A library has no
    repository.
    """

    package: str
    tree: str | None = None
    repository: str | None = None
    sha: str | None = None
    cherry_pick: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # put into it, by their place there
    build: str | None = None


@dataclass(frozen=True)
class TreesJob:
    trees: Sequence[TreeJob]
    env: Mapping[str, str] = field(default_factory=dict)
    mark: str | None = None  # written when everything is made
