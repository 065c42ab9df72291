"""`aorta launch`: a drop-in for torchrun that asks whether a crashed job should restart."""

import logging
import os
import sys
import traceback
import warnings
from contextlib import suppress

import click

from aorta.core.errors import AortaError, Exit, InfrastructureError


class _TorchrunCommand(click.Command):
    """Hands everything over as it stands: torchrun's own parser knows which words are options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params = {"arguments": tuple(args)}
        return []


@click.command("launch", cls=_TorchrunCommand, add_help_option=False)
def command(arguments: tuple[str, ...]) -> None:
    """Should this crashed job restart, or stop?"""
    from aorta.launch.config import demand_known_torch

    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="aorta launch: %(message)s"
    )
    logging.getLogger("aorta.launch").setLevel(logging.INFO)
    warnings.filterwarnings("default", category=DeprecationWarning, module=r"aorta\.launch")
    demand_known_torch()
    try:
        from aorta.launch.job import launch
    except ModuleNotFoundError as missing:
        raise InfrastructureError(
            f"aorta launch needs {missing.name}, which is not installed; install the build that "
            "is meant for this machine"
        ) from None
    try:
        code = launch(arguments)
    except AortaError as wrong:
        click.echo(f"aorta: {wrong}", err=True)
        code = int(wrong.exit_code)
    # Shown as Python would; it must not leave by taking itself apart.
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        code = int(Exit.FAILED)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    # Threads may still wait for a store in C++, which aborts a process that takes itself apart.
    os._exit(code)
