"""`aorta launch`: a drop-in for torchrun that asks whether a crashed job should restart."""

import gc
import logging
import sys
import warnings

import click

from aorta.core.errors import InfrastructureError


class _TorchrunCommand(click.Command):
    """Hands everything over as it stands: torchrun's own parser knows which words are options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params = {"arguments": tuple(args)}
        return []


@click.command("launch", cls=_TorchrunCommand, add_help_option=False)
def command(arguments: tuple[str, ...]) -> None:
    """Should this crashed job restart, or stop?"""
    try:
        from aorta.launch.job import launch
    except ModuleNotFoundError as missing:
        raise InfrastructureError(
            f"aorta launch needs {missing.name}, which is not installed; pip install 'aorta-triage[launch]'"
        ) from None
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="aorta launch: %(message)s"
    )
    logging.getLogger("aorta.launch").setLevel(logging.INFO)
    warnings.filterwarnings("default", category=DeprecationWarning, module=r"aorta\.launch")
    code = launch(arguments)
    gc.freeze()  # the interpreter would search all of torch for garbage before it leaves: a second
    raise click.exceptions.Exit(code)
