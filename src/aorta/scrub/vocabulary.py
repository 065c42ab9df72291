"""Word lists of the detectors, kept as data so that a word is added without reading a rule; and
which names announce a secret: `HF_TOKEN`, `dbPassword`, `--api-key`; but not `pad_token` or `PWD`.
"""

import math
import re
from collections import Counter


def words(text: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(text.split(separator))


# Names of values
# -------------------------------------------------------------------------------------------------

ALWAYS_SECRET = words(
    "password passwd passphrase passcode passwords secret secrets credential credentials apikey "
    "authtoken accesskey secretkey privatekey token bearer authorization cookie cookies dsn netrc "
    "sshpass pgpass dbpass userpass mysqlpwd dbpwd creds psk masterauth authtok bindpw rootpw"
)
ALL_BELOW_IS_SECRET = words("stringData string_data")
"""Whatever the keys in it are called: a Kubernetes secret."""
SECRET_ENDINGS = tuple(words("password passwd passphrase passcode apikey authtoken secretkey"))
"""Of one written word: PGPASSWORD, MYSQLPASSWD."""
PASSWORD_ELSEWHERE = tuple(
    words(
        "passwort kennwort wachtwoord contraseña contrasena mot_de_passe motdepasse senha "
        "пароль 密码 密碼 口令 パスワード 비밀번호"
    )
)
"""In other languages."""
ALWAYS_SECRET_PAIRS = words(
    "api key,access key,private key,secret key,account key,shared key,signing key,encryption "
    "key,client key,"
    "license key,master key,auth key,deploy key,connection string,webhook url,sas url,db "
    "pass,user pass,"
    "pg pass,storage key,app key,webhook secret",
    ",",
)
PASSES_OF_A_PROGRAM = words(
    "forward backward first second third last one two three single multi per each by low high band "
    "all num n max min train eval test fuse fusion compiler optimization opt fwd bwd ir mlir llvm "
    "did must will can to or and not no tests checks"
)
"""`forward_pass`, `num_pass`: the word before `pass` that makes it no password."""
ENGLISH_ENDINGS_IN_PASS = words("compass bypass surpass overpass underpass trespass encompass")
SECRET_IF_DENSE = ALWAYS_SECRET | words("key keys auth pass pwd session salt pin nonce tokens pat")
POINTS_AT_A_SECRET = words(
    "file path dir directory folder name id url uri type size length count ring "
    "error errors exception exceptions warning"
)
TOKEN_OF_A_VOCABULARY = words(
    "pad eos bos unk sep cls mask next prev special per image start end first last stop begin "
    "prompt num max min each new extra"
)
SECRET_NAME_TRAILERS = words(
    "data value base b encoded raw old new plain text default secure super prod production staging "
    "main primary backup"
)
HOST_NAMES = words(
    "host hostname host_name node nodes nodename node_name nodelist node_list hosts master_addr "
    "slurmd_nodename slurm_nodelist slurm_job_nodelist slurm_submit_host rdzv_host head_node agent"
)
USER_NAMES = words("user username user_name logname sudo_user slurm_job_user login")

# Machines and people
# ---------------------------------------------------------------------------------------------

ONLY_DOMAINS = words("com org edu gov mil corp lan intra localdomain biz info")
DOMAINS_AND_CODE = words("internal local cluster")
DOMAINS_WITH_A_DASH = words(
    "net io ai cloud dev co de uk fr eu cn jp kr in ch nl se us ca au app tech systems run"
)
MONTHS = words("jan feb mar apr may jun jul aug sep oct nov dec")
PUBLIC_DOMAINS = words(
    "github.com githubusercontent.com gitlab.com pytorch.org python.org huggingface.co nvidia.com "
    "amd.com docker.io docker.com quay.io gcr.io ghcr.io kernel.org ubuntu.com google.com "
    "googleapis.com wandb.ai readthedocs.io readthedocs.org stackoverflow.com example.com "
    "example.org example.net schedmd.com conda.io anaconda.org anaconda.com numpy.org scipy.org "
    "pydantic.dev ray.io apache.org gnu.org w3.org json-schema.org pypi.org pythonhosted.org "
    "slack.com discord.com discordapp.com office.com"
)
NOBODY = words(
    "localhost localdomain root user users ubuntu debian fedora centos rocky admin administrator "
    "runner nobody test build host node worker master head login compute server client none null "
    "unknown default local docker container jenkins data docs proxy registry storage metrics home "
    "public shared git daemon bin sys www-data ec2-user vagrant slurm ray rank leader agent all "
    "any self true false gpu cpu cuda rocm linux python aorta torch"
)
"""Too common to be anybody's name: hiding these would only make the text unreadable."""

HOST_WORDS = words("node nid dgx hgx host srv server compute cn hpc login ln rack")
"""`node042: ` in front of a line is a machine."""
INDEXED_WORDS = words(
    "rank gpu cuda hip worker step epoch layer stage trial task process proc device thread iter "
    "iteration batch block head expert shard bucket xla tpu rev run job utf iso top sha md resnet "
    "gpt llama bert vit qwen opt bloom sm int fp bf cu rocm version phase part chunk fold group "
    "level line case test exp experiment attempt checkpoint ckpt sample seed node replica actor "
    "issue bug rfc pep gh pr cve"
)
"""`rank-12: ` in front of a line is none."""

# Paths
# -------------------------------------------------------------------------------------------------

PRIVATE_ROOTS = words(
    "home root Users mnt media data scratch work workspace nfs lustre gpfs projects project tmp "
    "var srv datasets shared fsx efs beegfs ceph weka vast export net cluster opt"
)
PUBLIC_PACKAGES = words(
    "torch torchvision torchaudio numpy scipy jax jaxlib flax optax triton transformers accelerate "
    "datasets tokenizers deepspeed apex ray pytorch_lightning lightning vllm xformers flash_attn "
    "tensorflow keras pandas pydantic click aorta megatron peft safetensors huggingface_hub wandb "
    "hydra omegaconf setuptools pip"
)

# Fields of our own documents
# -------------------------------------------------------------------------------------------------

NAMES = words(
    "schema schema_version aorta_version status state verb version outcome outcomes verdict "
    "purpose kind type class action rule decided_by fingerprint env_fingerprint package commit "
    "name axis workload environment mitigations mitigations_applied baseline_cell cell call "
    "confound correction test step_time_source trial_id exit_status platform stream op dtype "
    "module verified_on stopped_by created started ended date captured_at run_timestamp "
    "git_version python_version pytorch_version toolkit_version kernel_release kernel_version libc "
    "driver_version source_package"
)
"""Kept where they hold a text or a list of texts."""

KEPT_TREES = words(
    "oracle gate packages other_packages versions histories commits rates metric metrics cpu cuda "
    "rocm devices gpus significance good bad last_good first_bad tally interval cascade initial "
    "final floor choices"
)
"""Kept with everything below: culprits, versions, metrics, oracles and values of axes can never
change.
"""

SEARCHED_TREES = words(
    "reproduce env_vars resolved_env_vars extra_env variables config workload_config command "
    "failure_details evidence failure_hints containers sides guilty nodes"
)
"""Whatever their fields are called, somebody else wrote what is in them."""

PATHS = words("file path cwd run_dir output_dir directory error_file log_paths remote url build")
"""Searched wherever they stand: what is kept around them does not say where somebody's files
are.
"""


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NOT_SECRETS = frozenset({"PWD", "OLDPWD", "oldpwd"})
_A_PLACE = ("/", "~", ".", "$", "\\", "C:")
_PLAIN_VALUE = re.compile(
    r"(?i)(?:true|false|none|null|nil|yes|no|on|off|unset|undefined|unknown|required|optional|"
    r"str|string|int|bytes|"
    r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?|\$\{?\w+\}?(?::\$\{?\w+\}?)?|%\w+%|\*+|\.+|x{3,}|"
    r"<[^<>]*>|\[[\w .,'\-]{0,40}\]|"
    r"(?:(?:bearer|basic|token) )?\$?\{\{?[\w .:\[\]'\-]{0,40}\}?\})\Z"
)
_DENSE = re.compile(r"[A-Za-z0-9+/_=.~\-]{16,}\Z")
_WRITTEN = re.compile(r"[A-Za-z]?[a-z]{0,12}\d{0,4}")


def announces_secret(name: str) -> bool:
    """The value of this name is a secret, whatever it looks like."""
    if name.lower().endswith(PASSWORD_ELSEWHERE) or name in ALL_BELOW_IS_SECRET:
        return True
    words = _words(name)
    if not words or name in _NOT_SECRETS:
        return False
    if words[-1] in ("pass", "pwd", "pw"):
        return words[-2] not in PASSES_OF_A_PROGRAM if len(words) > 1 else words[0] != "pw"
    if words[-1].endswith("pass") and words[-1] not in ENGLISH_ENDINGS_IN_PASS:
        return True
    if words[-1] == "token" and len(words) > 1 and words[-2] in TOKEN_OF_A_VOCABULARY:
        return False
    if words[-1].endswith(SECRET_ENDINGS):
        return True
    return words[-1] in ALWAYS_SECRET or " ".join(words[-2:]) in ALWAYS_SECRET_PAIRS


def may_announce_secret(name: str) -> bool:
    """The value of this name is a secret if it also looks like one: `key`, `auth`, `session`."""
    words = _words(name)
    if words[-2:] == ["key", "id"]:
        return True  # it says whose key it is
    if not words or name in _NOT_SECRETS or words[-1] in POINTS_AT_A_SECRET:
        return False
    return not SECRET_IF_DENSE.isdisjoint(words)


def is_worth_hiding(value: str) -> bool:
    """Not a number, a switch, a variable reference or a placeholder somebody already put there."""
    return len(value) > 1 and not _PLAIN_VALUE.match(value)


def is_secret_value(name: str, value: str) -> bool:
    """What to hide behind a secret's name; numbers are counts, unless it is a password."""
    low = name.lower()
    if low.endswith("pwd") and value.startswith(_A_PLACE):
        return False
    if any(word in low for word in ("passw", "passp", "passc", "pwd")) and value.isdigit():
        return len(value) >= 4
    return is_worth_hiding(value)


def is_metavar(name: str, value: str) -> bool:
    """`--hf-token TOKEN` in a usage line: capitals that repeat the name."""
    return value.isupper() and set(_words(value)) <= set(_words(name))


def names_a_password(name: str) -> bool:
    """Its value may be several words: a password, a passphrase, a secret."""
    last = (_words(name) or [""])[-1]
    return last.startswith(("pass", "secret")) or last.endswith(("pass", "pwd", "password"))


def is_dense(value: str) -> bool:
    """A long string without spaces that no language produces: near-random characters, and not
    words and numbers that somebody joined, as `model.layers.11.self_attn`.
    """
    if not _DENSE.match(value) or value.startswith("/"):
        return False
    if all(map(_WRITTEN.fullmatch, re.split(r"[._\-]", value))):
        return False
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return has_both and entropy(value) >= 3.0


def entropy(value: str) -> float:
    """Shannon bits a character."""
    counts = Counter(value)
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())


def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in SECRET_NAME_TRAILERS):
        words.pop()
    return words
