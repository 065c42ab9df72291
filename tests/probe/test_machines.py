"""The same probes on machines made of files: a ROCm node, a container, a laptop without
anything.
"""

import hashlib
from pathlib import Path

import pytest

from aorta.probe.gpus import platform_here, probe_hip, probe_hipblaslt, probe_system_health
from aorta.probe.host import container_type, probe_docker
from aorta.probe.machine import Machine
from aorta.probe.snapshot import collect_env
from support.fake_tools import put_files, put_tool

CARD = "/sys/class/drm/card{n}/device"


def amd_card(n: int, slot: str) -> dict[str, str]:
    place = CARD.format(n=n)
    return {
        f"{place}/vendor": "0x1002\n",
        f"{place}/uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={slot}\n",
        f"{place}/unique_id": f"8d2c{n}\n",
        f"{place}/mem_info_vram_total": str(196592 << 20),
        f"{place}/vbios_version": "113-M3000100-102\n",
    }


@pytest.fixture
def rocm_node(tmp_path: Path) -> Machine:
    root = put_files(
        tmp_path / "root",
        {
            "/dev/kfd": "",
            "/sys/module/amdgpu/version": "6.10.5\n",
            **amd_card(1, "0000:0c:00.0"),
            **amd_card(0, "0000:22:00.0"),
            "/sys/class/drm/card0-DP-1/status": "connected",
            "/sys/class/drm/card2/device/vendor": "0x1a03\n",
            "/sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 96\ngfx_target_version 0\n",
            "/sys/class/kfd/kfd/topology/nodes/1/properties": (
                f"simd_count 304\ngfx_target_version 90402\nlocation_id {0x0C00}\ndomain 0\n"
            ),
            "/opt/rocm/.info/version": "6.4.1-83\n",
            "/opt/rocm/.info/version-dev": "6.4.1-83\n",
            "/opt/rocm/include/hipblaslt/hipblaslt-version.h": (
                "#define HIPBLASLT_VERSION_MAJOR 0\n#define HIPBLASLT_VERSION_MINOR 12\n"
                "#define HIPBLASLT_VERSION_PATCH 1\n#define HIPBLASLT_VERSION_TWEAK 5b1d0fe3\n"
            ),
            "/opt/rocm/lib/libhipblaslt.so": "library",
            "/opt/rocm/lib/hipblaslt/library/b.dat": "",
            "/opt/rocm/lib/hipblaslt/library/a.co": "",
        },
    )
    put_tool(tmp_path / "bin", "hipconfig", 'echo "answer to $1"')
    put_tool(
        tmp_path / "bin",
        "rdhc",
        """while [ "$1" != --json ]; do shift; done; echo '{"rdhc_version": "1"}' > "$2" """,
    )
    return Machine(root, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})


def test_a_rocm_node_is_described_whole(rocm_node: Machine) -> None:
    snapshot = collect_env(rocm_node)
    assert snapshot.platform == "rocm"
    assert snapshot.rocm == {
        "version": "6.4.1-83",
        "version_dev": "6.4.1-83",
        "kmd_version": "6.10.5",
    }
    assert snapshot.hip is not None
    assert snapshot.hip["cpp_config"] == "answer to --cpp_config"
    assert snapshot.hipblaslt == {
        "commit": "5b1d0fe3",
        "package_version": "0.12.1",
        "lib_hash": f"sha256:{hashlib.sha256(b'library').hexdigest()}",
        "tensile_yaml_revision": f"filenames-sha256:{hashlib.sha256(b'a.co' + bytes([10]) + b'b.dat').hexdigest()}",
        "applied_prs": {},
    }
    assert snapshot.system_health == {"rdhc_version": "1"}
    assert [(gpu["pci"], gpu["arch"], gpu["memory_mib"]) for gpu in snapshot.gpus] == [
        ("0000:0c:00.0", "gfx942", 196592),
        ("0000:22:00.0", None, 196592),
    ]
    assert not [reason for reason in snapshot.partial_reasons if "pytorch" not in reason]


@pytest.mark.parametrize(
    ("target", "name"),
    [(90402, "gfx942"), (90010, "gfx90a"), (110003, "gfx1103"), (120000, "gfx1200")],
)
def test_a_target_has_the_name_that_people_use(rocm_node: Machine, target: int, name: str) -> None:
    node = "/sys/class/kfd/kfd/topology/nodes/1/properties"
    rocm_node.path(node).write_text(f"gfx_target_version {target}\nlocation_id {0x0C00}\n")
    environ = {**rocm_node.environ, "ROCM_HOME": str(target)}  # another key of the cache
    assert collect_env(Machine(rocm_node.root, environ)).gpus[0]["arch"] == name


def test_what_a_rocm_node_lacks_is_a_line_each(tmp_path: Path) -> None:
    root = put_files(tmp_path / "root", {"/dev/kfd": ""})
    snapshot = collect_env(Machine(root, {"PATH": "/nowhere"}))
    assert snapshot.partial
    for said in (
        "rocm.version: not found in the ROCm installation",
        "hip.version: hipconfig is not installed",
        "hip.cpp_config: hipconfig is not installed",
        "hipblaslt.lib_hash: not found in the ROCm installation",
        "system_health: rdhc is not installed",
        "gpus: the compute driver of AMD is loaded, but shows no GPU",
    ):
        assert said in snapshot.partial_reasons


def test_a_machine_without_gpus_lacks_nothing_of_a_vendor(tmp_path: Path) -> None:
    snapshot = collect_env(Machine(tmp_path, {"PATH": "/nowhere"}))
    assert snapshot.platform == "cpu"
    assert snapshot.gpus == []
    vendor = ("rocm", "hip", "cuda", "gpus", "system_health")
    assert not [reason for reason in snapshot.partial_reasons if reason.startswith(vendor)]


def test_a_hung_hipconfig_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tool(tmp_path / "bin", "hipconfig", f"echo x >> {tmp_path}/asked; sleep 600")
    machine = Machine(tmp_path, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    ask = Machine.ask
    monkeypatch.setattr(Machine, "ask", lambda self, *words: ask(self, *words, timeout=0.5))
    found = probe_hip(machine)
    assert (tmp_path / "asked").read_text() == "x\n"
    assert len(found.missing) == 5
    assert all("did not answer" in reason for reason in found.missing)


@pytest.mark.parametrize("report", ["not JSON", "[]", '"text"'])
def test_a_health_report_that_cannot_be_read_is_a_reason(tmp_path: Path, report: str) -> None:
    script = f"""while [ "$1" != --json ]; do shift; done; echo '{report}' > "$2" """
    put_tool(tmp_path / "bin", "rdhc", script)
    root = put_files(tmp_path / "root", {"/dev/kfd": ""})
    found = probe_system_health(Machine(root, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}))
    assert found.value is None
    assert found.missing == ("system_health: the report of rdhc is not a JSON object",)


def test_a_plain_user_is_told_to_take_root_and_nothing_takes_it_for_him(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tool(tmp_path / "bin", "rdhc", "true")
    put_tool(tmp_path / "bin", "sudo", f"touch {tmp_path}/taken")
    root = put_files(tmp_path / "root", {"/dev/kfd": ""})
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    found = probe_system_health(Machine(root, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}))
    assert found.missing == ("system_health: rdhc needs root; run: sudo aorta env probe",)
    assert not (tmp_path / "taken").exists()


def test_rocm_is_found_where_the_user_says_it_is(rocm_node: Machine) -> None:
    (rocm_node.root / "opt" / "rocm").rename(rocm_node.root / "opt" / "rocm-7")
    moved = Machine(rocm_node.root, {**rocm_node.environ, "ROCM_PATH": "/opt/rocm-7"})
    assert probe_hipblaslt(moved).value["commit"] == "5b1d0fe3"


ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({}, {"SINGULARITY_NAME": "x.sif"}, "singularity"),
        ({"/proc/1/cgroup": f"0::/docker/{ID}\n"}, {}, "docker"),
        ({"/proc/1/cgroup": f"0::/kubepods/besteffort/{ID}\n"}, {}, "kubernetes"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, "baremetal"),
        ({}, {}, "baremetal"),
    ],
)
def test_the_container_is_recognised(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], kind: str
) -> None:
    assert container_type(Machine(put_files(tmp_path, files), environ)) == kind


def test_a_container_knows_its_image_from_whoever_started_it(tmp_path: Path) -> None:
    root = put_files(tmp_path, {"/.dockerenv": "", "/proc/self/cgroup": f"0::/docker/{ID}\n"})
    told = {"AORTA_DOCKER_IMAGE": "rocm/pytorch", "AORTA_DOCKER_DIGEST": "sha256:12"}
    found = probe_docker(Machine(root, told))
    assert found.value == {"image": "rocm/pytorch", "digest": "sha256:12", "container_id": ID}
    assert found.missing == ()
    untold = probe_docker(Machine(root, {}))
    assert [reason.split(":")[0] for reason in untold.missing] == ["docker.image", "docker.digest"]


def test_a_container_tells_its_own_mounts_from_those_of_others(tmp_path: Path) -> None:
    other, own = "ab" * 32, "cd" * 32
    mounts = (
        f"1 0 0:1 / /var/lib/docker/containers/{other}/mounts/shm rw\n2 0 0:1 "
        f"/containers/{own}/hostname /etc/hostname rw\n"
    )
    root = put_files(tmp_path, {"/.dockerenv": "", "/proc/self/mountinfo": mounts})
    assert probe_docker(Machine(root, {})).value["container_id"] == own


def test_bare_metal_has_no_container_and_that_is_no_fault(tmp_path: Path) -> None:
    found = probe_docker(Machine(tmp_path, {}))
    assert (found.value, found.missing) == (None, ())


@pytest.mark.parametrize(
    ("files", "platform"),
    [
        ({}, "cpu"),
        ({"/dev/kfd": ""}, "rocm"),
        ({"/dev/nvidia0": ""}, "cuda"),
        ({"/dev/nvidiactl": ""}, "cpu"),
        ({"/dev/kfd": "", "/dev/nvidia0": ""}, "cuda"),
    ],
)
def test_the_platform_is_what_the_kernel_shows(
    tmp_path: Path, files: dict[str, str], platform: str
) -> None:
    assert platform_here(Machine(put_files(tmp_path, files), {"PATH": ""})) == platform
