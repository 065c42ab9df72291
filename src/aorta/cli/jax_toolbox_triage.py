"""`jax-toolbox-triage`: the bisection with the command line of JAX-Toolbox' tool."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from aorta.cli import options
from aorta.cli.bisect import MountsOrVerbose, bisect_and_show
from aorta.cli.printing import say
from aorta.core.errors import UsageError

_NAME = "jax-toolbox-triage"


class _UnderItsName(MountsOrVerbose):
    """Its name in the usage; options may be cut short as far as they stay clear, as there."""

    def with_long_names(self, args: list[str]) -> list[str]:
        return [self._whole(word) for word in super().with_long_names(args)]

    def _whole(self, word: str) -> str:
        name, equals, value = word.partition("=")
        options = [option for parameter in self.params for option in parameter.opts]
        meant = [option for option in options if option.startswith(name)]
        is_cut = name.startswith("--") and name not in options and len(meant) == 1
        return f"{meant[0]}{equals}{value}" if is_cut else word

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(_NAME, " ".join(self.collect_usage_pieces(ctx)))


def _listed(text: str | None, option: str) -> Mapping[str, str]:
    from aorta.bisect.spec import versions_from

    return versions_from(text, option)


def _picked(text: str | None) -> dict[str, list[str]]:
    """`jax:a,jax:b,xla:c`: a package may stand several times."""
    found: dict[str, list[str]] = {}
    for part in text.split(",") if text else ():
        name, colon, commit = part.strip().partition(":")
        if not (colon and name and commit):
            raise UsageError(f"--cherry-pick: found {part!r}, expected PACKAGE:COMMIT[,...]")
        found.setdefault(name, []).append(commit)
    return found


@click.command(
    cls=_UnderItsName,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
@click.option("--container", metavar="NAME", help="A family of dated containers, as jax.")
@click.option("--container-url-template", metavar="FMT", help="With {container} and {date}.")
@click.option("--start-date", metavar="DATE", help="The first date tried on the way back.")
@click.option("--end-date", metavar="DATE", help="A date that fails.  [default: the newest]")
@click.option("--threshold-days", type=click.IntRange(1), default=1, show_default=True)
@click.option("--passing-container", metavar="URL", help="Skip the search of containers.")
@click.option("--failing-container", metavar="URL", help="The same for the other end.")
@click.option("--passing-versions", metavar="PKG:VERSION[,...]", help="Of the passing end.")
@click.option("--failing-versions", metavar="PKG:VERSION[,...]", help="Of the failing end.")
@click.option("--passing-commits", metavar="PKG:VERSION[,...]", help="Deprecated.")
@click.option("--failing-commits", metavar="PKG:VERSION[,...]", help="Deprecated.")
@click.option("--skip-precondition-checks", is_flag=True, help="Trust the dates and the bad end.")
@click.option("--confirmation-iterations", type=click.IntRange(0), default=1, show_default=True)
@click.option("--metric-name", help="Judge by this number of metrics.json.")
@click.option("--passing-metric", type=float, multiple=True, help="A good value; repeatable.")
@click.option("--failing-metric", type=float, multiple=True, help="A bad value; repeatable.")
@click.option("--bazel-cache", metavar="DIR|URL", help="For builds of JAX and XLA.")
@click.option("--build-scripts-path", metavar="DIR", help="In the image: has installPKG.sh.")
@click.option("--cherry-pick", metavar="PKG:COMMIT[,...]", help="Build fixes, where they apply.")
@click.option("--override-remotes", metavar="PKG:URL[,...]", help="Fetch from these.")
@click.option("--main-branch", default="main", show_default=True, help="Of histories that fork.")
@click.option("--workaround-buggy-container", multiple=True, metavar="PKG", help="Its parent.")
@click.option("--exclude-transformer-engine", is_flag=True, help="It is neither built nor blamed.")
@click.option("--transformer-engine-ccache-env", multiple=True, metavar="K=V", help="Repeatable.")
@click.option("--container-mount", multiple=True, metavar="SRC:DST", help="Also -v; repeatable.")
@click.option(
    "--container-runtime",
    type=click.Choice(["docker", "pyxis", "local", "plugin"], case_sensitive=False),
    default="docker",
    show_default=True,
)
@click.option("--container-registry", metavar="R[:PREFIX]", help="Of plugin: push images there.")
@click.option("--output-prefix", type=click.Path(path_type=Path), help="[default: triage-<now>]")
@click.option("--restart", is_flag=True, help="Go on with the run in --output-prefix.")
@options.displaying_with("--verbose", help="Also -v. Every event, one line each.")
@click.argument("test_command", nargs=-1, required=True)
def command(
    test_command: tuple[str, ...],
    passing_commits: str | None,
    failing_commits: str | None,
    **said: Any,
) -> None:
    """Find the container, then the commit of JAX, XLA or another package, that broke a test.

    \b
    jax-toolbox-triage --container jax test-jax.sh //tests:nn_test_gpu
    jax-toolbox-triage --passing-container A --failing-container B -v $PWD:/work /work/test.sh

    The flags are those of JAX-Toolbox; exit codes and further options: `aorta bisect --help`.
    """
    from aorta.bisect.jax_toolbox import Flags, request_of

    display = options.display_from(said)
    for side, commits in (("passing", passing_commits), ("failing", failing_commits)):
        if commits and said[f"{side}_versions"]:
            raise UsageError(f"--{side}-commits is another name of --{side}-versions: give one")
        if commits:
            say(f"--{side}-commits is deprecated: it is called --{side}-versions now")
            said[f"{side}_versions"] = commits
        said[f"{side}_versions"] = _listed(said[f"{side}_versions"], f"--{side}-versions")
    said["cherry_pick"] = _picked(said["cherry_pick"])
    said["override_remotes"] = _listed(said["override_remotes"], "--override-remotes")
    said["container_runtime"] = said["container_runtime"].lower()
    bisect_and_show(request_of(Flags(test_command=test_command, **said)), display)
