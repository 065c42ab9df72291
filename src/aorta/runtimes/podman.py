"""What is particular to podman."""

from aorta.runtimes.engine import Engine
from aorta.runtimes.launch import Refusal

PODMAN = Engine(
    command="podman",
    install="apt-get install podman catatonit",
    start="see what is wrong with: podman info",
    client_options=frozenset(
        {
            "--cgroup-manager",
            "--connection",
            "--identity",
            "--log-level",
            "--root",
            "--runroot",
            "--runtime",
            "--storage-driver",
            "--storage-opt",
            "--url",
        }
    ),
    run_options=("--http-proxy=false",),  # it copies the host's proxies into a container otherwise
    remove=("rm", "--force", "--volumes", "--time", "0"),  # its --force alone waits ten seconds
    refusals=(
        Refusal(125, r"^Error: "),
        Refusal(126, r"^Error: .*OCI"),
        Refusal(127, r"^Error: .*OCI|^Error: .*executable file"),
        Refusal(1, r"^ERROR \(catatonit:\d+\): failed to exec"),  # --init hides the usual 127
    ),
    nvidia=("--device=nvidia.com/gpu=all",),
    keeps_out=(),
    root_is_caller=True,
)
