"""`aorta bisect`: which container, and which commit of which package, broke it?"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aorta.cli import options
from aorta.cli.printing import print_json, say, show_plan

if TYPE_CHECKING:
    from aorta.bisect.findings import Findings
    from aorta.bisect.request import BisectRequest

_SCHEMA = "aorta.bisect/1"


class MountsOrVerbose(click.Command):
    """`-v SRC:DST` mounts, a bare `-v` is --verbose; neither is read inside the command."""

    @property
    def command_words(self) -> str:
        """The name of the argument that holds them."""
        return str(next(p.name for p in self.params if isinstance(p, click.Argument)))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = self.with_long_names(args)
        own = len(args) - self._command_length(ctx, named)
        return super().parse_args(ctx, [*named[:own], *args[own:]])

    def with_long_names(self, args: list[str]) -> list[str]:
        return [
            word if word != "-v" else "--container-mount" if ":" in follower else "--verbose"
            for word, follower in zip(args, [*args[1:], ""], strict=True)
        ]

    def _command_length(self, ctx: click.Context, args: list[str]) -> int:
        try:
            found, _, _ = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError:  # told by whoever parses for good
            return 0
        words = found.get(self.command_words)
        return len(words) if isinstance(words, (list, tuple)) else 0


_environment_options = options.stacked(
    click.option("--good-env", metavar="FILE|VENV", help="Requirements, an env.json, a venv."),
    click.option("--bad-env", metavar="FILE|VENV", help="One with it.  [default: the active one]"),
    click.option("--index-url", metavar="URL", help="The package index.  [default: as pip has it]"),
    click.option(
        "--extra-index-url", multiple=True, metavar="URL", help="Another one; repeatable."
    ),
    click.option("--find-links", multiple=True, metavar="DIR|URL", help="More files; repeatable."),
    click.option("--no-index", is_flag=True, help="No index, only --find-links."),
    click.option("--pre", is_flag=True, help="Pre-releases and nightly builds are candidates too."),
)

_ENVIRONMENT_KEYS = {
    "good_env": "good",
    "bad_env": "bad",
    **{name: name for name in ("index_url", "extra_index_url", "find_links", "no_index", "pre")},
}

_container_options = options.stacked(
    click.option(
        "--container", "family", metavar="FAMILY", help="Bisect the dated containers of it."
    ),
    click.option(
        "--container-runtime", "runtime", type=click.Choice(["docker", "podman", "pyxis", "host"])
    ),
    click.option("--container-url-template", "url_template", help="With {container} and {date}."),
    click.option(
        "--start-date", metavar="YYYY-MM-DD", help="The first date tried on the way back."
    ),
    click.option(
        "--end-date", metavar="YYYY-MM-DD", help="A date that fails.  [default: the newest]"
    ),
    click.option("--threshold-days", type=click.IntRange(1), help="Stop at containers this close."),
    click.option("--passing-container", "passing", metavar="URL"),
    click.option("--failing-container", "failing", metavar="URL"),
    click.option("--bazel-cache", metavar="DIR|URL", help="For builds inside containers."),
    click.option("--shm-size", help="Shared memory of a container.  [default: 1g]"),
    click.option(
        "--container-mount", "mounts", multiple=True, metavar="SRC:DST", help="Also -v; repeatable."
    ),
)

_CONTAINER_KEYS = (
    *("family", "runtime", "url_template", "start_date", "end_date", "threshold_days"),
    *("passing", "failing", "bazel_cache", "shm_size", "mounts"),
)


@click.command(cls=MountsOrVerbose, context_settings={"allow_interspersed_args": False})
@click.option("--good", metavar="REV", help="A revision without the failure.")
@click.option("--bad", metavar="REV", help="A revision with it.  [default: HEAD]")
@_environment_options
@click.option("--spec", type=click.Path(path_type=Path), help="A bisect.yaml.")
@click.option("--find-fix", is_flag=True, help="Find the commit that repaired it: --good is newer.")
@click.option("--first-parent", is_flag=True, help="Name the merge, not the commit it merged.")
@click.option("--confidence", type=float, help="Stop at this probability.  [default: 0.95]")
@_container_options
@click.option("--passing-versions", metavar="PKG:VERSION[,...]")
@click.option("--failing-versions", metavar="PKG:VERSION[,...]")
@click.option("--skip-precondition-checks", is_flag=True, help="Take both ends as they are said.")
@click.option(
    "--same-failure", is_flag=True, help="A failure unlike the first is neither good nor bad."
)
@click.option("--any-failure", is_flag=True, help="Between environments too: any one is bad.")
@click.option("--metric-name", help="Judge by this number in the probe's metrics.json.")
@click.option("--passing-metric", type=float, multiple=True, help="A good sample; repeatable.")
@click.option("--failing-metric", type=float, multiple=True, help="A bad sample; repeatable.")
@options.oracle_options
@options.running_trials
@click.option("--build-timeout", type=options.Duration(), help="Of one build.")
@click.option("--max-trials", type=click.IntRange(1), help="Stop after this many.")
@click.option("--max-time", type=options.Duration(), help="Stop after this long.")
@click.option("--extra-env", multiple=True, metavar="NAME=VALUE", help="For the test; repeatable.")
@click.option("--output-prefix", type=click.Path(path_type=Path), help="Where everything goes.")
@options.unless(
    "--no-checks", "checks", help="No trials to check the answer: its sides, partner, older break."
)
@options.resumable
@click.option("--dry-run", is_flag=True, help="Print the plan, and run nothing.")
@options.displaying_with("--verbose", help="Also -v. Every event, one line each.")
@options.command_words("[--] [COMMAND...]")
def command(dry_run: bool, **given: Any) -> None:
    """Find the change that brought a failure, however flaky it is: in git history, dated containers
    or versions.

    The command fails as the oracle says (by default: any exit but 0); exit 125 skips a state.

    \b
    aorta bisect --good v1.2 --bad HEAD -- pytest -x tests/test_nn.py
    aorta bisect --good-env last-week.txt --bad-env .venv -- python train.py
    aorta bisect --container jax -- test-jax.sh //tests:nn_test_gpu
    aorta bisect --spec bisect.yaml --jobs 8

    \b
    Exit codes: 0 found, or a range or pair that holds it; 2 the command line or spec is wrong;
    3 no answer: did not reproduce, inconsistent ends, never good; 4 stopped by a budget;
    5 infrastructure, or no trial could tell; 130/143 interrupted (go on with --resume).
    """
    from aorta.bisect.request import plan

    display = options.display_from(given)
    request = _request_from(given)
    if dry_run:
        show_plan("bisect", **plan(request), as_json=display.as_json)
    else:
        bisect_and_show(request, display)


def _request_from(given: options.Given) -> "BisectRequest":
    from aorta.bisect.request import BisectRequest
    from aorta.bisect.spec import versions_from

    for option in ("passing_versions", "failing_versions"):
        given[option] = versions_from(given[option], f"--{option.replace('_', '-')}")
    return BisectRequest(
        environments=_keys_from(given, _ENVIRONMENT_KEYS),
        containers=_keys_from(given, {key: key for key in _CONTAINER_KEYS}),
        extra_env=options.variables_from(given.pop("extra_env")),
        oracle=options.oracle_from(given),
        executor=options.executor_from(given),
        resume=options.resume_from(given),
        **given,
    )


def _keys_from(given: options.Given, keys: Mapping[str, str]) -> dict[str, Any]:
    """Those that were given, by the names that they have in a spec."""
    found = {key: given.pop(option) for option, key in keys.items()}
    return {key: value for key, value in found.items() if value}


def bisect_and_show(request: "BisectRequest", display: options.Display) -> None:
    from aorta.bisect.request import bisect
    from aorta.bisect.watching import short

    findings = bisect(
        request,
        lambda: display.listeners(describe=short, each=options.a_line_a_trial),
        (lambda _: None) if display.quiet else say,
    )
    if display.as_json:
        print_json(_SCHEMA, findings.document())
    _show(findings, display)
    raise click.exceptions.Exit(findings.exit_code)


def _show(findings: "Findings", display: options.Display) -> None:
    """The answer goes to stdout, as everywhere; beside a document of `--json` it is for people."""
    from aorta.bisect.report import summary_lines
    from aorta.core.errors import Exit

    if not (display.as_json and display.quiet):
        for line in summary_lines(findings):
            click.echo(line, err=display.as_json)
    if findings.status == "partial":
        say(f"aorta: go on with: aorta bisect --resume {shlex.quote(findings.output_dir)}")
    if findings.exit_code == Exit.INFRASTRUCTURE:
        say(f"aorta: {findings.warnings[-1] if findings.warnings else 'trials were lost'}")
