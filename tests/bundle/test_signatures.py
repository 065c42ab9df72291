"""Signatures: made by a real ssh-keygen, checked by it, and by anybody without Aorta."""

import subprocess
from pathlib import Path

import pytest

from support import real_runs
from support.aorta_cli import aorta


def key_pair(folder: Path, name: str = "key", kind: str = "ed25519") -> Path:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "x", "-f", path], check=True)
    return path


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    key = key_pair(tmp_path)
    done = aorta(
        "bundle",
        real_runs.reduce_dir(),
        "--no-check",
        "--output",
        tmp_path / "out",
        "--sign",
        key,
        "--json",
    )
    assert done.exit_code == 0, done.stderr
    bundle = Path(done.json()["path"])
    assert done.json()["signature"] == f"{bundle}.sig"
    return bundle, key


def test_a_signed_bundle_is_good_for_its_key_and_for_no_other(
    signed: tuple[Path, Path], tmp_path: Path
) -> None:
    bundle, key = signed
    good = aorta("bundle", "verify", bundle, "--key", f"{key}.pub", "--json")
    assert good.exit_code == 0, good.stderr
    assert good.json()["signature"] == "good"
    assert aorta("bundle", "verify", bundle, "--json").json()["signature"] == "unchecked"
    other = key_pair(tmp_path, "other")
    bad = aorta("bundle", "verify", bundle, "--key", f"{other}.pub")
    assert bad.exit_code == 1
    assert "signature is not good" in bad.stderr


def test_a_bundle_changed_after_signing_is_refused_even_if_it_is_whole(
    signed: tuple[Path, Path], tmp_path: Path
) -> None:
    bundle, key = signed
    another = aorta(
        "bundle",
        real_runs.reduce_dir(),
        "--no-check",
        "--ticket",
        "X",
        "--output",
        tmp_path / "out",
        "--json",
    ).json()
    bundle.write_bytes(Path(another["path"]).read_bytes())
    assert aorta("bundle", "verify", bundle).exit_code == 0
    assert aorta("bundle", "verify", bundle, "--key", f"{key}.pub").exit_code == 1


def test_an_unsigned_bundle_is_refused_when_a_key_is_demanded(signed: tuple[Path, Path]) -> None:
    bundle, key = signed
    Path(f"{bundle}.sig").unlink()
    done = aorta("bundle", "verify", bundle, "--key", f"{key}.pub")
    assert done.exit_code == 1
    assert "is not signed" in done.stderr


def test_a_key_that_is_not_ed25519_or_not_there_is_refused_before_anything_is_packed(
    tmp_path: Path,
) -> None:
    run = real_runs.reduce_dir()
    (tmp_path / "text").write_text("no key")
    for key in (key_pair(tmp_path, "rsa", "rsa"), tmp_path / "missing", tmp_path / "text"):
        done = aorta("bundle", run, "--output", tmp_path / "out", "--sign", key)
        assert done.exit_code == 2, key
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_private_key_is_not_taken_for_a_public_one(signed: tuple[Path, Path]) -> None:
    bundle, key = signed
    done = aorta("bundle", "verify", bundle, "--key", key)
    assert done.exit_code == 2
    assert "public Ed25519 key" in done.stderr


def test_openssh_alone_can_check_the_signature(signed: tuple[Path, Path], tmp_path: Path) -> None:
    bundle, key = signed
    allowed = tmp_path / "allowed"
    allowed.write_text(f"anyone {Path(f'{key}.pub').read_text('utf-8')}")
    with bundle.open("rb") as content:
        done = subprocess.run(
            [
                "ssh-keygen",
                "-Y",
                "verify",
                "-f",
                allowed,
                "-I",
                "anyone",
                "-n",
                "aorta-bundle",
                "-s",
                f"{bundle}.sig",
            ],
            stdin=content,
            capture_output=True,
        )
    assert done.returncode == 0, done.stderr
