"""A corpus of made-up secrets and identifiers, each with the line it stands on and the part that
must vanish.

Every value is drawn from a seeded generator, so no real credential is in it and no scanner trips
over this file.
"""

import base64
import random
import string
from dataclasses import dataclass

from aorta.scrub.findings import Kind

_RANDOM = random.Random(20260101)
_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Planted:
    name: str
    line: str  # what a log or a script would say
    value: str  # what may be nowhere in the result
    kind: Kind
    alone: bool = True  # recognisable without the line around it


def _draw(length: int, alphabet: str = _ALNUM) -> str:
    head = "a1B2" if alphabet == _ALNUM else ""  # letters and digits both, whatever is drawn
    return head + "".join(_RANDOM.choices(alphabet, k=length - len(head)))


def _secret(name: str, value: str, line: str = "using {} now", *, alone: bool = True) -> Planted:
    return Planted(name, line.format(value), value, Kind.CREDENTIAL, alone)


def _private_key() -> str:
    label = "OPENSSH PRIVATE KEY"
    body = "\n".join(_draw(64) for _ in range(4))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----"


def _jwt() -> str:
    parts = ('{"alg":"HS256","typ":"JWT"}', '{"sub":"1234567890","name":"x"}')
    head = ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return f"{head}.{_draw(43)}"


_PROVIDERS = [
    _secret("aws access key", "AKIA" + _draw(16, string.ascii_uppercase + "234567")),
    _secret("aws session key", "ASIA" + _draw(16, string.ascii_uppercase + "234567")),
    _secret("github classic", "ghp_" + _draw(36)),
    _secret("github server", "ghs_" + _draw(36)),
    _secret("github fine-grained", "github_pat_" + _draw(22) + "_" + _draw(59)),
    _secret("gitlab", "glpat-" + _draw(20)),
    _secret("slack bot", "xoxb-" + _draw(12, string.digits) + "-" + _draw(24)),
    _secret(
        "slack hook",
        "https://hooks.slack.com/services/T" + _draw(8) + "/B" + _draw(8) + "/" + _draw(24),
    ),
    _secret(
        "discord hook",
        "https://discord.com/api/webhooks/" + _draw(18, string.digits) + "/" + _draw(60),
    ),
    _secret("stripe", "sk_live_" + _draw(24)),
    _secret("google api", "AIza" + _draw(35)),
    _secret("google oauth", "ya29." + _draw(60)),
    _secret("google client", "GOCSPX-" + _draw(28)),
    _secret("hugging face", "hf_" + _draw(34)),
    _secret("openai", "sk-" + _draw(48)),
    _secret("openai project", "sk-proj-" + _draw(48)),
    _secret("anthropic", "sk-ant-api03-" + _draw(80)),
    _secret("nvidia", "nvapi-" + _draw(64)),
    _secret("replicate", "r8_" + _draw(37)),
    _secret("groq", "gsk_" + _draw(52)),
    _secret("databricks", "dapi" + _draw(32, _HEX)),
    _secret("digitalocean", "dop_v1_" + _draw(64, _HEX)),
    _secret("npm", "npm_" + _draw(36)),
    _secret("pypi", "pypi-AgEIcHlwaS5vcmc" + _draw(60)),
    _secret("docker hub", "dckr_pat_" + _draw(27)),
    _secret("sendgrid", "SG." + _draw(22) + "." + _draw(43)),
    _secret("twilio", "SK" + _draw(32, _HEX)),
    _secret("telegram", _draw(9, string.digits) + ":AA" + _draw(33)),
    _secret("mailchimp", _draw(32, _HEX) + "-us12"),
    _secret("jwt", _jwt()),
    _secret("vault", "hvs." + _draw(90)),
    _secret("grafana", "glsa_" + _draw(32) + "_" + _draw(8, _HEX)),
    _secret("new relic", "NRAK-" + _draw(27, string.ascii_uppercase + string.digits)),
    _secret("linear", "lin_api_" + _draw(40)),
    _secret("shopify", "shpat_" + _draw(32, _HEX)),
    _secret("square", "sq0atp-" + _draw(22)),
    _secret("age", "AGE-SECRET-KEY-1" + _draw(58, string.ascii_uppercase + string.digits)),
    _secret("tailscale", "tskey-auth-" + _draw(12) + "-" + _draw(32)),
    _secret("postman", "PMAK-" + _draw(24, _HEX) + "-" + _draw(34, _HEX)),
    _secret("atlassian", "ATATT3" + _draw(180)),
    _secret("artifactory", "AKC" + _draw(60)),
    _secret("wandb own server", "local-" + _draw(40, _HEX)),
    _secret("private key", _private_key()),
]
_ANNOUNCED = [
    _secret("wandb", _draw(40, _HEX), "WANDB_API_KEY={}", alone=False),
    _secret("password assignment", "hunter2-" + _draw(4), "export DB_PASSWORD='{}'", alone=False),
    _secret("password with punctuation", "p@ss;w&rd" + _draw(4), 'password = "{}"', alone=False),
    _secret(
        "password flag",
        "correct-horse-" + _draw(3),
        "train.py --password {} --steps 5",
        alone=False,
    ),
    _secret("token flag", _draw(20), "train.py --auth-token={}", alone=False),
    _secret("camel case key", _draw(24), '"clientSecret": "{}"', alone=False),
    _secret("aws secret", _draw(38) + "/+", "aws_secret_access_key = {}", alone=False),
    _secret(
        "azure account key",
        _draw(86) + "==",
        "AccountName=acc;AccountKey={};EndpointSuffix=x",
        alone=False,
    ),
    _secret(
        "azure signature",
        _draw(43),
        "https://huggingface.co/x?sv=2022-11-02&sig={}&se=2026",
        alone=False,
    ),
    _secret("url login", "svc:" + _draw(12), "postgresql://{}@127.0.0.1:5432/runs", alone=False),
    _secret(
        "pip index login",
        "__token__:" + _draw(30),
        "pip install -i https://{}@python.org/simple x",
        alone=False,
    ),
    _secret("bearer header", _draw(40), "Authorization: Bearer {}", alone=False),
    _secret(
        "basic header",
        base64.b64encode(b"svc:" + _draw(12).encode()).decode(),
        "authorization: Basic {}",
        alone=False,
    ),
    _secret("cookie header", "sid=" + _draw(24), "Cookie: {}", alone=False),
    _secret("curl login", "svc:" + _draw(10), "curl -s -u {} https://python.org/", alone=False),
    _secret("sshpass", _draw(10), "sshpass -p {} ssh worker", alone=False),
    _secret("netrc", _draw(14), "machine python.org login svc password {}", alone=False),
    _secret("dense key", _draw(32), "comet key: {}", alone=False),
    _secret("yaml passphrase", _draw(12), "passphrase: {}", alone=False),
    _secret("python keyword", _draw(20), "login(token='{}')", alone=False),
    _secret("python dict", _draw(20), "{{'api_key': '{}'}}", alone=False),
    _secret(
        "query token", _draw(24), "GET https://python.org/x?access_token={}&page=2", alone=False
    ),
]
_IDENTITIES = [
    Planted(
        "home path",
        "loading /home/jdoe77/proj-x/train.py",
        "/home/jdoe77/proj-x/train.py",
        Kind.PATH,
    ),
    Planted(
        "user of a home",
        "step by jdoe77 done, see /home/jdoe77/x",
        "jdoe77",
        Kind.USER,
        alone=False,
    ),
    Planted("mac home path", "in /Users/jdoe77/code/a.py", "/Users/jdoe77/code/a.py", Kind.PATH),
    Planted("root home", "saved /root/exp/ckpt.bin", "/root/exp/ckpt.bin", Kind.PATH),
    Planted("mount", "data=/mnt/acme-nas/set/a.bin", "/mnt/acme-nas/set/a.bin", Kind.PATH),
    Planted("scratch", 'File "/scratch/acme/run.py", line 3', "/scratch/acme/run.py", Kind.PATH),
    Planted("shared memory", "staged /dev/shm/acme/a.bin", "/dev/shm/acme/a.bin", Kind.PATH),
    Planted(
        "path with a space",
        'open("/home/jdoe77/my runs/a.txt")',
        "my runs/a.txt",
        Kind.PATH,
        alone=False,
    ),
    Planted("include path", "cc -I/home/jdoe77/inc x.c", "/home/jdoe77/inc", Kind.PATH),
    Planted("tilde path", "cd ~jdoe77/secret-proj/run", "~jdoe77/secret-proj/run", Kind.PATH),
    Planted("colon list", "PYTHONPATH=/usr/lib:/home/jdoe77/lib", "/home/jdoe77/lib", Kind.PATH),
    Planted(
        "windows path", r"C:\Users\jdoe77\code\a.py failed", r"C:\Users\jdoe77\code\a.py", Kind.PATH
    ),
    Planted("unc path", r"\\filer7\share\acme\x.bin", r"filer7\share\acme", Kind.PATH),
    Planted(
        "bucket",
        "reading s3://acme-train-data/shard-1.tar",
        "acme-train-data/shard-1.tar",
        Kind.PATH,
    ),
    Planted(
        "clone address",
        "origin git@github.com:acme/secret-model.git",
        "acme/secret-model.git",
        Kind.PATH,
    ),
    Planted("ipv4", "connect 10.11.12.13:29500", "10.11.12.13", Kind.IPV4),
    Planted("public ipv4", "peer 93.184.216.34 reset", "93.184.216.34", Kind.IPV4),
    Planted(
        "ipv6", "peer [2001:db8:85a3::8a2e:370:7334]:443", "2001:db8:85a3::8a2e:370:7334", Kind.IPV6
    ),
    Planted(
        "link-local ipv6",
        "via fe80::1ff:fe23:4567:890a%eth0",
        "fe80::1ff:fe23:4567:890a",
        Kind.IPV6,
    ),
    Planted("mac", "link/ether 3c:ec:ef:12:34:56 brd", "3c:ec:ef:12:34:56", Kind.MAC),
    Planted(
        "infiniband address",
        "hw 80:00:02:08:fe:80:00:00:00:00:00:00",
        "80:00:02:08:fe:80:00:00:00:00:00:00",
        Kind.MAC,
    ),
    Planted("dotted mac", "arp 3cec.ef12.3456 dynamic", "3cec.ef12.3456", Kind.MAC),
    Planted(
        "e-mail", "mail jane.doe@acme-labs.com for access", "jane.doe@acme-labs.com", Kind.EMAIL
    ),
    Planted("domain", "resolving gpu7.acme-labs.com failed", "gpu7.acme-labs.com", Kind.HOST),
    Planted("internal name", "host ip-10-3-2-1.ec2.internal down", "ip-10-3-2-1", Kind.HOST),
    Planted("cluster name", "gpu07.cluster.local is gone", "gpu07.cluster.local", Kind.HOST),
    Planted(
        "intranet page",
        "see https://wiki.acme.corp/projects/zeus",
        "projects/zeus",
        Kind.PATH,
        alone=False,
    ),
    Planted(
        "nccl host",
        "hgx-node-12:4711:4800 [0] NCCL INFO Bootstrap",
        "hgx-node-12",
        Kind.HOST,
        alone=False,
    ),
    Planted(
        "socket host",
        "failed to connect to [hgx-node-13]:29500",
        "hgx-node-13",
        Kind.HOST,
        alone=False,
    ),
    Planted(
        "syslog host", "Nov 15 05:35:08 hgx14 kernel: NVRM: Xid", "hgx14", Kind.HOST, alone=False
    ),
    Planted("slurm host", "srun: error: hgx15: task 3: Killed", "hgx15", Kind.HOST, alone=False),
    Planted("login", "jdoe78@hgx16:~$ ls", "hgx16", Kind.HOST, alone=False),
    Planted("rendezvous", "MASTER_ADDR=hgx-head-1", "hgx-head-1", Kind.HOST, alone=False),
]

_LESS_COMMON = [
    _secret("postgres variable", "hunter3-" + _draw(5), "PGPASSWORD={} psql", alone=False),
    _secret("ssh variable", "hunter4-" + _draw(5), "SSHPASS={} ./go", alone=False),
    _secret("argument list", "hunter5-" + _draw(5), "['mysql', '--password', '{}', 'db']", alone=False),
    _secret("environ in source", "hunter6-" + _draw(5), 'os.environ["WANDB_API_KEY"] = "{}"', alone=False),
    _secret("wandb login", _draw(40, _HEX), "wandb login {}", alone=False),
    _secret("docker login", "hunter7-" + _draw(5), "docker login -u me -p {} reg", alone=False),
    _secret("mysql option", "hunter8-" + _draw(5), "mysql -u me -p{} db", alone=False),
    _secret("xml element", "hunter9-" + _draw(5), "<password>{}</password>", alone=False),
    _secret("name and value", "hunter0-" + _draw(5), "- name: DB_PASSWORD\n  value: {}", alone=False),
]  # fmt: skip
_MACHINES = [
    Planted("user variable", "USER=jdoe79 HOME=x", "jdoe79", Kind.USER, alone=False),
    Planted("job on a host", "JOB 4711 ON gpu-a-017 CANCELLED", "gpu-a-017", Kind.HOST, alone=False),
    Planted("remote peer", "remote peer node-7<41017>", "node-7", Kind.HOST, alone=False),
    Planted("host and port", "connect to (gpu-a-018, 29500) failed", "gpu-a-018", Kind.HOST, alone=False),
]  # fmt: skip

CORPUS: tuple[Planted, ...] = (
    *_PROVIDERS,
    *_ANNOUNCED,
    *_IDENTITIES,
    *_LESS_COMMON,
    *_MACHINES,
)
