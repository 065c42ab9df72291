"""The known environment variables, as this process has them. Secrets never enter."""

from aorta.probe.finding import Finding
from aorta.probe.machine import Machine
from aorta.registry.variables import KNOWN_VARIABLES
from aorta.scrub.secrets import safe_value

_MAX_VALUE = 4096


def probe_env_vars(machine: Machine) -> Finding:
    return Finding({name: _recorded(name, machine.environ.get(name)) for name in KNOWN_VARIABLES})


def _recorded(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    if len(value) > _MAX_VALUE:  # cut, half a secret could stay; and nobody reads so much
        return f"<{len(value)} characters>"
    return safe_value(name, value)
