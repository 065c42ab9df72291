"""What is particular to docker."""

from aorta.runtimes.engine import Engine
from aorta.runtimes.launch import Refusal

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")

DOCKER = Engine(
    command="docker",
    install="apt-get install docker.io",
    start="systemctl start docker, or point DOCKER_HOST at the engine",
    client_options=frozenset({"--config", "--context", "--host", "--log-level", "-H"}),
    run_options=(),
    remove=("rm", "--force", "--volumes"),
    refusals=(
        Refusal(
            125, r"^docker: |^unknown |^invalid |'docker run --help'|error waiting for container"
        ),
        Refusal(126, r"^docker: "),
        Refusal(127, r"^docker: "),
    ),
    nvidia=("--gpus=all",),
    # The client's own configuration may add proxies to every container; naming them unset keeps them out.
    keeps_out=(*_PROXIES, *(name.upper() for name in _PROXIES)),
    root_is_caller=False,
)
