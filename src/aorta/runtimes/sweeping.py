"""Removes containers that nobody can remove any more: their owner was killed before it could."""

from collections.abc import Iterator, Sequence

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Environment, RuntimeKind
from aorta.runtimes.containers import ENGINES
from aorta.runtimes.engine import Client, ask, client_of
from aorta.runtimes.owner import OWNER_LABEL, Owner

_THIS_MACHINE = (
    Environment("docker", RuntimeKind.DOCKER),
    Environment("podman", RuntimeKind.PODMAN),
)
_NAME_AND_OWNER = f'{{{{.Name}}}}\t{{{{index .Config.Labels "{OWNER_LABEL}"}}}}'


def sweep(
    owner: Owner | None = None, environments: Sequence[Environment] = _THIS_MACHINE
) -> tuple[str, ...]:
    """Remove the containers of `owner`, or of every owner that is certainly dead; returns their names.

    `environments` say which engines to look into. One that is absent or does not answer runs no container.
    """
    clients = {_answering(place) for place in environments if place.kind in ENGINES}
    return tuple(name for client in clients if client for name in _sweep_engine(client, owner))


def _answering(environment: Environment) -> Client | None:
    try:
        client, _ = client_of(ENGINES[environment.kind], environment.options)
        return client if ask(client, "ps", "--quiet").returncode == 0 else None
    except InfrastructureError:
        return None


def _sweep_engine(client: Client, owner: Owner | None) -> Iterator[str]:
    for name, label in _owned(client):
        of = Owner.from_label(label)
        if of is not None and (of == owner if owner else of.is_gone()):
            ask(client, *client.engine.remove, name)
            yield name


def _owned(client: Client) -> Iterator[tuple[str, str]]:
    found = ask(client, "ps", "--all", "--quiet", f"--filter=label={OWNER_LABEL}").stdout.split()
    if not found:
        return
    for line in ask(client, "inspect", f"--format={_NAME_AND_OWNER}", *found).stdout.splitlines():
        name, _, label = line.partition("\t")
        yield name.removeprefix("/"), label
