"""Signatures with an Ed25519 SSH key, made and checked by `ssh-keygen -Y`.

Why ssh-keygen and not a Python package: both sides already have it and the keys (agents and
hardware keys included), the other side can check a signature without Aorta, and no compiled
dependency is added for one call. The signature is a file of its own, `BUNDLE.sig`, so the bundle's
bytes stay reproducible.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from aorta.bundle.manifest import BundleError
from aorta.core.errors import InfrastructureError, UsageError

NAMESPACE = "aorta-bundle"
_SIGNER = "aorta"
_KINDS = ("ssh-ed25519", "sk-ssh-ed25519@openssh.com")


def signature_path(bundle: Path) -> Path:
    return bundle.with_name(f"{bundle.name}.sig")


def check_signing_key(key: Path) -> None:
    """Before anything is packed: the key is there, is Ed25519, and the tool to use it is too."""
    done = _ssh_keygen("-l", "-f", str(_existing(key)))
    kind = done.stdout.strip().rsplit(" ", 1)[-1].strip("()")
    if done.returncode != 0 or kind not in {"ED25519", "ED25519-SK"}:
        raise UsageError(
            "is not an Ed25519 key; make one with: ssh-keygen -t ed25519", where=str(key)
        )


def sign(bundle: Path, key: Path) -> Path:
    """`BUNDLE.sig` beside the bundle. A key's passphrase is asked for, or the agent used."""
    signature = signature_path(bundle)
    signature.unlink(missing_ok=True)
    done = _ssh_keygen("-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(bundle))
    if done.returncode != 0:
        raise UsageError(
            f"ssh-keygen cannot sign with this key: {_last_line(done)}", where=str(key)
        )
    return signature


def check_signature(bundle: Path, public_key: Path) -> None:
    """The bundle is the one that the owner of this key signed, or a BundleError."""
    signature = signature_path(bundle)
    if not signature.is_file():
        raise BundleError(
            f"is not signed: there is no {signature.name} beside it", where=str(bundle)
        )
    with tempfile.TemporaryDirectory(prefix="aorta-signers-") as folder:
        allowed = Path(folder) / "allowed_signers"
        allowed.write_text(
            f'{_SIGNER} namespaces="{NAMESPACE}" {_public_key(public_key)}\n', "utf-8"
        )
        with bundle.open("rb") as content:
            who = ("-f", str(allowed), "-I", _SIGNER, "-n", NAMESPACE, "-s", str(signature))
            done = _ssh_keygen("-Y", "verify", *who, stdin=content.fileno())
    if done.returncode != 0:
        raise BundleError(
            f"the signature is not good for {public_key.name}: {_last_line(done)}",
            where=str(bundle),
        )


def _public_key(path: Path) -> str:
    """`ssh-ed25519 AAAA...`, without its comment, which may hold anything."""
    try:
        words = _existing(path).read_text("utf-8").split()
    except UnicodeDecodeError:
        words = []
    if len(words) < 2 or words[0] not in _KINDS:
        raise UsageError(
            "is not a public Ed25519 key; expected a .pub file of ssh-keygen", where=str(path)
        )
    return f"{words[0]} {words[1]}"


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UsageError("there is no such key", where=str(path))
    return path


def _ssh_keygen(*arguments: str, stdin: int | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise InfrastructureError("signatures need ssh-keygen; install the OpenSSH client")
    return subprocess.run(
        [program, *arguments],
        stdin=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {done.returncode}"
