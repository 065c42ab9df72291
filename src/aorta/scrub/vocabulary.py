"""Word lists of the detectors; which names announce a secret: `HF_TOKEN`, not `pad_token`."""

import math
import re
from collections import Counter


def words(text: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(text.split(separator))


ALWAYS_SECRET = words(
    "secret secrets credential credentials apikey authtoken accesskey secretkey privatekey token "
    "bearer authorization cookie cookies dsn netrc mysqlpwd dbpwd creds psk masterauth authtok "
    "mnemonic passkey"
)
ALL_BELOW_IS_SECRET = words("stringData string_data")
ALSO_ENGLISH = words("token secret cookie bearer credentials pass pw")
"""`unexpected token: foo` is a message, `token=foo` is not."""
PASSWORD_ELSEWHERE = tuple(
    words(
        "passwort kennwort wachtwoord contraseña contrasena mot_de_passe motdepasse senha "
        "пароль 密码 密碼 口令 パスワード 비밀번호"
    )
)
NAMES_OF_TWO_WORDS = words(
    "api key,access key,private key,secret key,account key,shared key,signing key,encryption "
    "key,client key,license key,product key,recovery key,unseal key,master key,"
    "auth key,deploy key,storage key,app key,root key,connection string,webhook url,webhook "
    "secret,sas url,verification code,security code,access code,auth code,otp code,recovery "
    "code,backup code,seed phrase,recovery phrase,pass phrase,pass word,"
    "password hash,user pin,so pin,pin code",
    ",",
)
PASSES_OF_A_PROGRAM = words(
    "forward backward first second third last one two three single multi per each by low high band "
    "all num n max min train eval test fuse fusion compiler optimization opt fwd bwd ir mlir llvm "
    "did must will can to or and not no tests checks"
)
"""`forward_pass`, `num_pass`: the word before `pass` that makes it no password."""
ENGLISH_ENDINGS_IN_PASS = words("compass bypass surpass overpass underpass trespass encompass")
KEYS_OF_A_PROGRAM = words(
    "cache hash sort primary foreign partition compile kernel public dict state config group index"
)
SECRET_IF_DENSE = ALWAYS_SECRET | words(
    "key keys auth pass pwd session salt pin nonce tokens otp totp signature sessionid phpsessid "
    "jsessionid csrf pat"
)
POINTS_AT_A_SECRET = words(
    "file path dir directory folder name id url uri type size length count ring "
    "error errors exception exceptions warning"
)
TOKEN_OF_A_VOCABULARY = words(
    "pad eos bos unk sep cls mask next prev special per image start end first last stop begin "
    "prompt num max min each new extra video audio"
)
SECRET_NAME_TRAILERS = words(
    "data value base b encoded raw old new plain text default secure super prod production staging "
    "main primary backup"
)
STATES = words(
    "not no none is are was has have must should may can cannot will invalid incorrect wrong bad "
    "missing empty expired required optional unset set given provided accepted rejected refused "
    "denied failed failure mismatch unknown unexpected error found ok yes enabled disabled "
    "hidden redacted masked removed inherit please the a an this your use using see from for"
)
"""`password: incorrect` says what became of it."""
PLACEHOLDERS = words(
    "your my the here example dummy fake sample placeholder empty insert todo redacted hidden "
    "masked removed censored filtered omitted token key api secret password pass"
)
"""What a value is made of that somebody is to replace: `your_token_here`."""
TECHNICAL = words(
    "sha1 sha224 sha256 sha384 sha512 md5 pbkdf2 base64 base32 ed25519 utf8 oauth2 oauth1 argon2 "
    "argon2i argon2id aes128 aes256 rsa2048 rsa4096 bcrypt2 http1 http2 x509 pkcs8 pkcs12 hs256 "
    "rs256 es256 ipv4 ipv6 krb5 1password python3 kerberos5 smb2 smb3 tls12 tls13"
)
HOST_NAMES = words(
    "host hostname host_name node nodes nodename node_name nodelist node_list hosts master_addr "
    "slurmd_nodename slurm_nodelist slurm_job_nodelist slurm_submit_host rdzv_host head_node agent"
)
USER_NAMES = words("user username user_name logname sudo_user slurm_job_user login")
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
ENUMERATIONS = words("schema status state verb outcome verdict purpose kind action")
"""Kept whatever is to be taken out: what they hold is a word of ours."""
KEYS = words(
    "accepted axes budget bytes candidate candidates causes cells checked confirmed dropped "
    "duration_sec durations_sec exit_code failure files frames hang harmless ignored "
    "in_original_directory k_of_n_to_count_as_reproducing left_out message monotone names next "
    "of oom_killed oracle original paths pattern patterns rate reproduced resumed_trials "
    "scrubbed search seconds secrets seen self_contained separator setbacks shipped_copy signal "
    "signature start started_at step steps strategy summary ticket timed_out timeout told_by "
    "tolerance trials trials_per_candidate unresolved values warm why words"
)
"""Further names of fields that we give."""
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
"""Kept with everything below."""
SEARCHED_TREES = words(
    "reproduce env_vars resolved_env_vars extra_env variables config workload_config command "
    "failure_details evidence failure_hints containers sides guilty nodes"
)
"""Whatever their fields are called, somebody else wrote what is in them."""
PATHS = words("file path cwd run_dir output_dir directory error_file log_paths remote url build")
"""Searched wherever they stand."""

FILES = words(
    "run_repro.sh repro.py aorta.yaml recipe.resolved.yaml env.json host_env.json order.json "
    "requirements.txt used.yaml spec.yaml result.json reduction_trace.jsonl SHIP.md README.md "
    "report.html report.md manifest.json stdout.log stderr.log matrix.json optimize.json "
    "solve.json finding.json cycle_info.json elsewhere.yaml bisect.yaml timeline.json"
)
FOLDERS = words("shrunken sidecars logs cells points trials environments probes stages")
"""Names that we give: of files wherever they stand, of folders where that is all."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PASSWORD = re.compile(r"\w*(?:pa?ss?w(?:o?r)?d|passphrase|passcode|pwd|pw)s?\Z")
_NOT_SECRETS = frozenset({"PWD", "OLDPWD", "oldpwd", "issecret"})
_A_PLACE = ("/", "~", ".", "$", "\\", "C:")
_PLAIN_VALUE = re.compile(
    r"(?i)(?:true|false|none|null|nil|yes|no|on|off|unset|undefined|unknown|required|optional|"
    r"str|string|int|bytes|"
    r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?(?:[nmu]?s|%|[kMG]i?B)?|"
    r"\$\{[\w.]+:[\w.]+|\d+(?:\.\d+){2,3}|\$\{?\w+\}?(?::\$\{?\w+\}?)?|%\w+%|\*+|\.+|"
    r"x{3,}|0x[0-9a-f]{1,16}|\\u\w{4}|<[^<>]*>|<\|[^\s]*\|>|\[[\w .,'\-]{0,40}\]|"
    r"(?:(?:bearer|basic|token) )?\$?\{\{?(?:[\w .:\[\]'\-]{0,40}\}?\})?)\Z"
)
_DENSE = re.compile(r"[A-Za-z0-9+/_.~\-]{15,}[A-Za-z0-9+/_.~\-=]={0,2}\Z")
_WRITTEN = re.compile(r"[A-Za-z]?[a-z]{0,12}\d{0,4}[a-z]?")
_VARIABLE = re.compile(r"[A-Za-z]+(?:[_.][A-Za-z]+)+:?\Z")


def announces_secret(name: str) -> bool:
    """The value of this name is a secret, whatever it looks like."""
    if name.lower().endswith(PASSWORD_ELSEWHERE) or name in ALL_BELOW_IS_SECRET:
        return True
    words = _words(name)
    if not words or name in _NOT_SECRETS:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("pass", "pwd", "pw"):
        return before not in PASSES_OF_A_PROGRAM
    if last == "token" and before in TOKEN_OF_A_VOCABULARY:
        return False
    if last.endswith("pass") and last not in ENGLISH_ENDINGS_IN_PASS:
        return True
    return (
        last in ALWAYS_SECRET
        or f"{before} {last.removesuffix('s')}" in NAMES_OF_TWO_WORDS
        or _PASSWORD.match(last) is not None
        or last.endswith(("apikey", "authtoken", "secretkey", "secret"))
    )


def may_announce_secret(name: str) -> bool:
    """The value of this name is a secret if it also looks like one: `key`, `auth`, `session`."""
    words = _words(name)
    if words[-2:] in (["key", "id"], ["session", "id"]):
        return True  # it says whose key it is
    if not words or name in _NOT_SECRETS or words[-1] in POINTS_AT_A_SECRET:
        return False
    if words[-1] == "key" and words[-2:-1] and words[-2] in KEYS_OF_A_PROGRAM:
        return False
    return not SECRET_IF_DENSE.isdisjoint(words)


def is_secret_value(name: str, value: str) -> bool:
    """No switch, variable reference, placeholder or path; a number only of a password or code."""
    low = name.lower()
    if low.endswith("pwd") and value.startswith(_A_PLACE):
        return False
    if value.isdigit() and (names_a_password(name) or low.endswith(("code", "codes", "pin"))):
        return len(value) >= 4
    is_name = _VARIABLE.match(value) is not None and announces_secret(value)
    is_known = is_name or value.lower() in TECHNICAL
    return is_worth_hiding(value) and not is_known and not _is_to_be_replaced(name, value)


def is_worth_hiding(value: str) -> bool:
    """Not a number, a switch, a variable reference or a placeholder somebody already put there."""
    return len(value) > 1 and not _PLAIN_VALUE.match(value)


def _is_to_be_replaced(name: str, value: str) -> bool:
    """`--hf-token TOKEN`, `your_token_here`: words that repeat the name or ask for the value."""
    of_value = _words(value)
    return value.isascii() and set(of_value) <= PLACEHOLDERS | set(_words(name)) and bool(of_value)


def is_mixed(value: str) -> bool:
    """Letters and digits in one word that is no word of a sentence about passwords."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return has_both and len(value) >= 6 and " " not in value


def names_a_password(name: str) -> bool:
    """Its value may be several words: a password, a passphrase, a secret."""
    last = (_words(name) or [""])[-1]
    of_words = last.startswith(("secret", "mnemonic", "phrase")) or last.endswith("pass")
    return of_words or last.startswith("pass") or _PASSWORD.match(last) is not None


def is_dense(value: str) -> bool:
    """A long near-random string without spaces, unlike the words of `model.layers.11.self_attn`."""
    if not _DENSE.match(value) or value.startswith("/"):
        return False
    if all(map(_WRITTEN.fullmatch, re.split(r"[._\-]", value))):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    entropy = -sum(share * math.log2(share) for share in shares)
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and entropy >= 3.0


def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in SECRET_NAME_TRAILERS):
        words.pop()
    return words
