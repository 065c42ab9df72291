"""Sidecar files: what a user brings along, and every way in which such a file can be wrong."""

import json
from pathlib import Path

import pytest

from aorta.core.errors import RegistryError
from aorta.core.trial import RuntimeKind
from aorta.registry.environments import get_environment, load_environments
from aorta.registry.mitigations import get_mitigation, load_mitigations

SECRET = "hunter2-is-my-password"


def sidecar(directory: Path, content: object, name: str = "site.json") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_sidecar_adds_mitigations_and_environments(tmp_path: Path) -> None:
    path = sidecar(
        tmp_path,
        {
            "version": 1,
            "mitigations": {"quiet_links": {"SITE_LINKS": "0"}},
            "environments": {
                "rocm/nightly": {"docker": "rocm/pytorch:nightly", "venv": None, "env": {"A": "1"}},
                "old": {"venv": "/opt/old"},
                "pod": {"podman": "box", "mounts": ["/data:/data:ro"], "options": ["--ipc=host"]},
            },
        },
    )
    mitigation = get_mitigation("quiet_links", [path])
    assert (mitigation.env, mitigation.source) == ({"SITE_LINKS": "0"}, "sidecar:site.json")
    assert mitigation.platforms == ("rocm", "cuda", "cpu")
    nightly = get_environment("rocm/nightly", [path])
    assert (nightly.kind, nightly.image) == (RuntimeKind.DOCKER, "rocm/pytorch:nightly")
    assert (nightly.env, nightly.source) == ({"A": "1"}, "sidecar:site.json")
    assert get_environment("old", [path]).venv == "/opt/old"
    assert get_environment("pod", [path]).mounts == ("/data:/data:ro",)


HOSTILE: dict[str, tuple[object, str, str]] = {
    "no JSON": ('{"version": 1', ":1:14", "JSON"),
    "empty": ("", ":1:1", "JSON"),
    "a list": ([], "", "expected a mapping"),
    "a string": (f'"{SECRET}"', "", "expected a mapping"),
    "no version": ({"mitigations": {}}, ": version", "found nothing, expected 1"),
    "other version": ({"version": 2}, ": version", "found 2, expected 1"),
    "version as text": ({"version": "1"}, ": version", "found a str, expected 1"),
    "version as true": ({"version": True}, ": version", "found a bool, expected 1"),
    "version as float": ({"version": 1.0}, ": version", "found a float, expected 1"),
    "unknown section": ({"version": 1, "mitigation": {}}, "", "unknown key 'mitigation'"),
    "doubled section": ('{"version": 1, "mitigations": {}, "mitigations": {}}', "", "twice"),
    "doubled name": (
        '{"version": 1, "mitigations": {"a": {}, "a": {}}}',
        "",
        "'a' stands twice",
    ),
    "section as list": ({"version": 1, "mitigations": []}, ": mitigations", "found a list"),
    "section as null": ({"version": 1, "mitigations": None}, ": mitigations", "NoneType"),
    "mitigation as text": (
        {"version": 1, "mitigations": {"a": SECRET}},
        ": mitigations.a",
        "found a str",
    ),
    "value as number": (
        {"version": 1, "mitigations": {"a": {"TOKEN": 7}}},
        ": mitigations.a",
        "TOKEN is a int",
    ),
    "value as null": (
        {"version": 1, "mitigations": {"a": {"X": None}}},
        ": mitigations.a",
        "X is a NoneType",
    ),
    "value with NUL": (
        {"version": 1, "mitigations": {"a": {"X": f"{SECRET}\0"}}},
        ": mitigations.a",
        "NUL",
    ),
    "bad variable": (
        {"version": 1, "mitigations": {"a": {"1X": SECRET}}},
        ": mitigations.a",
        "'1X' is not a variable name",
    ),
    "variable with =": (
        {"version": 1, "mitigations": {"a": {"A=B": SECRET}}},
        ": mitigations.a",
        "not a variable name",
    ),
    "empty name": ({"version": 1, "mitigations": {"": {}}}, ": mitigations", "cannot name"),
    "name with comma": ({"version": 1, "mitigations": {"a,b": {}}}, ": mitigations", "commas"),
    "name with newline": ({"version": 1, "mitigations": {"a\nb": {}}}, ": mitigations", "visible"),
    "environment as text": (
        {"version": 1, "environments": {"e": "image"}},
        ": environments.e",
        "found a str",
    ),
    "unknown key": (
        {"version": 1, "environments": {"e": {"dokcer": SECRET}}},
        ": environments.e",
        "unknown key 'dokcer'",
    ),
    "two places": (
        {"version": 1, "environments": {"e": {"docker": "a", "venv": "b"}}},
        ": environments.e",
        "docker and venv",
    ),
    "image as number": (
        {"version": 1, "environments": {"e": {"docker": 7}}},
        ": environments.e.docker",
        "found a int",
    ),
    "empty image": (
        {"version": 1, "environments": {"e": {"docker": " "}}},
        ": environments.e.docker",
        "non-empty",
    ),
    "env value as list": (
        {"version": 1, "environments": {"e": {"env": {"X": [SECRET]}}}},
        ": environments.e.env",
        "X is a list",
    ),
    "mounts as text": (
        {"version": 1, "environments": {"e": {"mounts": "/a:/b"}}},
        ": environments.e.mounts",
        "list of strings",
    ),
    "mount as number": (
        {"version": 1, "environments": {"e": {"mounts": ["/a:/b", 3]}}},
        ": environments.e.mounts[1]",
        "found a int",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_wrong_sidecar_is_one_line_with_file_and_place_and_no_value(
    tmp_path: Path, case: str
) -> None:
    content, place, said = HOSTILE[case]
    path = sidecar(tmp_path, content)
    load = load_environments if "environments" in place else load_mitigations
    with pytest.raises(RegistryError) as refused:
        load([path])
    line = str(refused.value)
    assert line.startswith(f"{path}{place}: ")
    assert said in line
    assert "\n" not in line
    assert SECRET not in line


def test_a_name_that_is_already_taken_is_refused_whoever_had_it(tmp_path: Path) -> None:
    again = sidecar(tmp_path, {"version": 1, "mitigations": {"xnack": {"HSA_XNACK": "0"}}})
    with pytest.raises(RegistryError, match=r"'xnack' is defined twice, by aorta and by sidecar:"):
        load_mitigations([again])
    one = sidecar(tmp_path, {"version": 1, "mitigations": {"mine": {}}}, "one.json")
    two = sidecar(tmp_path, {"version": 1, "mitigations": {"mine": {}}}, "two.json")
    with pytest.raises(RegistryError, match=r"sidecar:one\.json and by sidecar:two\.json"):
        load_mitigations([one, two])


def test_one_file_named_twice_counts_once_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    content = {"version": 1, "mitigations": {"mine": {}}}
    path = sidecar(tmp_path / "a", content)
    assert "mine" in load_mitigations([path, tmp_path / "a" / ".." / "a" / "site.json"])
    other = sidecar(tmp_path / "b", {"version": 1})
    with pytest.raises(RegistryError, match="same file name"):
        load_mitigations([path, other])
