"""Word lists of the detectors, kept as data so that a word is added without reading a rule."""


def words(text: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(text.split(separator))


# Names of values -------------------------------------------------------------------------------------------------

ALWAYS_SECRET = words(
    "password passwd passphrase passcode passwords secret secrets credential credentials apikey authtoken "
    "accesskey secretkey privatekey token bearer authorization cookie cookies dsn netrc sshpass pgpass dbpass userpass "
    "mysqlpwd dbpwd"
)
SECRET_ENDINGS = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "apikey",
    "authtoken",
    "secretkey",
)
"""Of one written word: PGPASSWORD, MYSQLPASSWD."""
ALWAYS_SECRET_PAIRS = words(
    "api key,access key,private key,secret key,account key,shared key,signing key,encryption key,client key,"
    "license key,master key,auth key,deploy key,connection string,webhook url,sas url,db pass,user pass,"
    "pg pass,auth pass,smtp pass,mysql pwd,db pwd,user pwd,admin pwd,root pwd",
    ",",
)
SECRET_IF_DENSE = ALWAYS_SECRET | words("key keys auth pass pwd session salt pin nonce tokens")
POINTS_AT_A_SECRET = words(
    "file path dir directory folder name id url uri type size length count ring"
)
TOKEN_OF_A_VOCABULARY = words(
    "pad eos bos unk sep cls mask next prev special per image start end first last stop begin prompt "
    "num max min each new extra"
)
SECRET_NAME_TRAILERS = words("data value base b encoded raw old new plain text")
HOST_NAMES = words(
    "host hostname host_name node nodes nodename node_name nodelist node_list hosts master_addr "
    "slurmd_nodename slurm_nodelist slurm_job_nodelist slurm_submit_host rdzv_host head_node agent"
)
USER_NAMES = words("user username user_name logname sudo_user slurm_job_user login")

# Machines and people ---------------------------------------------------------------------------------------------

ONLY_DOMAINS = words("com org edu gov mil corp lan intra localdomain biz info")
DOMAINS_AND_CODE = words("internal local cluster")
DOMAINS_WITH_A_DASH = words(
    "net io ai cloud dev co de uk fr eu cn jp kr in ch nl se us ca au app tech systems run"
)
MONTHS = words("jan feb mar apr may jun jul aug sep oct nov dec")
PUBLIC_DOMAINS = words(
    "github.com githubusercontent.com gitlab.com pytorch.org python.org huggingface.co "
    "nvidia.com amd.com docker.io docker.com quay.io gcr.io ghcr.io kernel.org ubuntu.com google.com "
    "wandb.ai readthedocs.io readthedocs.org stackoverflow.com example.com example.org example.net schedmd.com "
    "conda.io anaconda.org anaconda.com numpy.org scipy.org pydantic.dev ray.io apache.org gnu.org w3.org "
    "json-schema.org pypi.org pythonhosted.org slack.com discord.com discordapp.com office.com"
)
NOBODY = words(
    "localhost localdomain root user users ubuntu debian fedora centos rocky admin administrator runner nobody "
    "test build host node worker master head login compute server client none null unknown default local docker "
    "container jenkins data home public shared git daemon bin sys www-data ec2-user vagrant slurm ray rank leader "
    "agent all any self true false gpu cpu cuda rocm linux python aorta torch"
)
"""Too common to be anybody's name: hiding these would only make the text unreadable."""

# Paths -----------------------------------------------------------------------------------------------------------

PRIVATE_ROOTS = words(
    "home root Users mnt media data scratch work workspace nfs lustre gpfs projects project tmp var srv datasets "
    "shared fsx efs beegfs ceph weka vast export net cluster opt"
)
PUBLIC_PACKAGES = words(
    "torch torchvision torchaudio numpy scipy jax jaxlib flax optax triton transformers accelerate datasets "
    "tokenizers deepspeed apex ray pytorch_lightning lightning vllm xformers flash_attn tensorflow keras pandas "
    "pydantic click aorta megatron peft safetensors huggingface_hub wandb hydra omegaconf setuptools pip"
)
