"""Free ports on the loopback interface, that stay ours while this process lives."""

import random
import socket

_BELOW_WHAT_THE_SYSTEM_GIVES_OUT = range(20_000, 32_000)
_CLAIMS: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """All different, and never given to two test processes of one machine at once."""
    ports = random.SystemRandom().sample(_BELOW_WHAT_THE_SYSTEM_GIVES_OUT, 2000)
    found = (port for port in ports if _is_free(port) and _claimed(port))
    return [next(found) for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
        return True


def _claimed(port: int) -> bool:
    """A name that the kernel takes back when this process ends, however it ends."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0aorta-test-port-{port}")
    except OSError:
        claim.close()
        return False
    _CLAIMS.append(claim)
    return True
