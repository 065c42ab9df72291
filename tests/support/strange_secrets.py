"""150 secrets in 43 kinds of surroundings: facts about shapes, names and file formats, collected
from public documentation and from what other scanners' test suites cover.

Written before the detectors that it measures. Values are drawn from a seeded generator: none is
real. A shape is text with drawn parts: `{A20}` letters and digits, `{h32}` hexadecimal digits,
`{U16}` capitals and digits 2 to 7, `{d9}` digits, `{l8}` small letters, `{b40}` letters, digits,
`-` and `_`, `{s40}` letters, digits, `+` and `/`.
"""

import base64
import random
import re
import string
from dataclasses import dataclass

from support import blind_secrets as blind

_ALPHABETS = {
    "A": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "U": string.ascii_uppercase + "234567",
    "d": string.digits,
    "l": string.ascii_lowercase,
    "b": string.ascii_letters + string.digits + "-_",
    "s": string.ascii_letters + string.digits + "+/",
}

KEYS_BY_SHAPE = """
aws_access_key_id                AKIA{U16}
aws_temporary_key_id             ASIA{U16}
github_token                     ghp_{A36}
github_oauth                     gho_{A36}
github_app                       ghs_{A36}
github_refresh                   ghr_{A36}
github_fine_grained              github_pat_{A22}_{A59}
gitlab_token                     glpat-{b20}
gitlab_runner                    glrt-{b20}
gitlab_deploy                    gldt-{b20}
gitlab_trigger                   glptt-{h40}
slack_bot                        xoxb-{d12}-{d12}-{A24}
slack_user                       xoxp-{d11}-{d11}-{d12}-{h32}
slack_app                        xapp-1-A{A10}-{d13}-{h64}
slack_webhook                    https://hooks.slack.com/services/T{A8}/B{A10}/{A24}
discord_webhook                  https://discord.com/api/webhooks/{d18}/{b68}
teams_webhook                    https://contoso.webhook.office.com/webhookb2/{h32}@{h32}/IncomingWebhook/{h32}/{h32}
stripe_secret                    sk_live_{A24}
stripe_restricted                rk_live_{A24}
stripe_webhook                   whsec_{A32}
google_api                       AIza{b35}
google_oauth_secret              GOCSPX-{b28}
google_access                    ya29.{b60}
hugging_face                     hf_{A34}
hugging_face_org                 api_org_{A34}
openai_classic                   sk-{A48}
openai_project                   sk-proj-{b74}
anthropic                        sk-ant-api03-{b93}AA
nvidia_ngc                       nvapi-{b64}
replicate                        r8_{A37}
groq                             gsk_{A52}
xai                              xai-{A80}
perplexity                       pplx-{A48}
databricks                       dapi{h32}
digitalocean                     dop_v1_{h64}
npm                              npm_{A36}
pypi                             pypi-AgEIcHlwaS5vcmc{b70}
rubygems                         rubygems_{h48}
docker_hub                       dckr_pat_{b27}
sendgrid                         SG.{b22}.{b43}
twilio_key                       SK{h32}
telegram_bot                     {d10}:AA{b33}
mailchimp                        {h32}-us14
mailgun                          key-{h32}
vault_service                    hvs.{b95}
vault_batch                      hvb.{b140}
terraform_cloud                  {A14}.atlasv1.{b67}
grafana_service                  glsa_{A32}_{h8}
new_relic                        NRAK-{U27}
sentry_org                       sntrys_eyJ{b120}
linear                           lin_api_{A40}
doppler                          dp.pt.{A43}
shopify                          shpat_{h32}
square                           sq0atp-{b22}
age                              AGE-SECRET-KEY-1{U58}
tailscale                        tskey-auth-{A12}-{A32}
pulumi                           pul-{h40}
postman                          PMAK-{h24}-{h34}
atlassian                        ATATT3xFfGF0{b180}
airtable                         pat{A14}.{h64}
figma                            figd_{b40}
json_web_token                   eyJhbGciOiJIUzI1NiJ9.eyJ{b40}.{b43}
artifactory                      AKCp{A69}
wandb_server                     local-{h40}
notion                           ntn_{A46}
langsmith                        lsv2_pt_{h32}_{h10}
pinecone                         pcsk_{A6}_{A63}
fireworks                        fw_{A24}
cloudflare_origin                v1.0-{h24}-{h146}
planetscale                      pscale_tkn_{b43}
prefect                          pnu_{A36}
fly                              fo1_{b43}
easypost                         EZAK{A54}
duffel                           duffel_live_{b43}
dynatrace                        dt0c01.{U24}.{U64}
frame_io                         fio-u-{b64}
clojars                          CLOJARS_{A60}
typeform                         tfp_{b59}
readme                           rdme_{A70}
sendinblue                       xkeysib-{h64}-{A16}
shippo                           shippo_live_{h40}
adafruit                         aio_{A28}
contentful                       CFPAT-{b43}
infracost                        ico-{A32}
onepassword                      ops_eyJ{s250}
scalingo                         tk-us-{b48}
sourcegraph                      sgp_{h40}
harness                          pat.{A22}.{h24}.{A20}
openshift_user                   sha256~{b43}
alibaba                          LTAI{A20}
facebook_page                    EAAM{A110}
yandex_cloud                     AQVN{b35}
private_key                      -----BEGIN RSA PRIVATE KEY-----\\n{s64}\\n{s64}\\n{s40}\\n-----END RSA PRIVATE KEY-----
openssh_key                      -----BEGIN OPENSSH PRIVATE KEY-----\\n{s70}\\n{s70}\\n-----END OPENSSH PRIVATE KEY-----
"""

SECRETS_BY_NAME = """
db_password                      hunter2Secret{d2}
postgres_password                {A12}
mysql_root_password              {l6}-{d4}!
redis_pass                       {l8}{d2}
ldap_pwd                         {l5}#{d5}
ldap_bind_password               {A10}
smtp_password                    {l4} {l4} {l4} {l4}
admin_passwd                     S3cure{l5}
user_pass                        {l6}{d3}
keystore_pass                    changeit{d3}
ssh_passphrase                   {l6} {l5} {l7} {l6}
gpg_passphrase                   correct {l5} battery {l6}
vault_passphrase                 {l5}-{l5}-{l5}
wandb_api_key                    {h40}
comet_api_key                    {A25}
neptune_api_token                {s80}==
mlflow_tracking_password         {A14}
mlflow_tracking_token            {A32}
clearml_api_secret_key           {A50}
aws_secret_access_key            {s40}
aws_session_token                {s120}
azure_client_secret              {A3}8Q~{b34}
azure_storage_key                {s86}==
gcp_api_secret                   {b24}
s3_secret_key                    {s40}
minio_secret_key                 {A20}
minio_root_password              {l8}{d3}
datadog_api_key                  {h32}
datadog_app_key                  {h40}
pagerduty_token                  {b20}
okta_token                       00{b40}
auth0_client_secret              {b64}
oauth_client_secret              {A32}
consumer_secret                  {A50}
jwt_secret                       {l10}-{d4}
session_secret                   {A32}
cookie_secret                    {s43}=
secret_key_base                  {h128}
encryption_key                   {h64}
signing_secret                   {h32}
webhook_secret                   {A24}
api_key                          {A32}
x_api_key                        {A40}
service_token                    {A36}
registry_password                {A16}
ngc_api_key                      {A40}
nexus_password                   {l6}{d2}
jenkins_token                    {h34}
sonar_token                      {h40}
circleci_token                   {h40}
bitbucket_app_password           {A18}
rabbitmq_pass                    {l8}{d2}
kafka_sasl_password              {A16}
elastic_password                 {A20}
mongo_password                   {A15}
license_key                      {U5}-{U5}-{U5}-{U5}
"""

Surroundings = dict[str, str]

NAMED: Surroundings = {
    # the file | its text; what else stands in it must stay
    "config.yaml": "model: gpt\n{key}: {value}\nsteps: 10\n",
    "quoted.yaml": 'model: gpt\n{key}: "{value}"  # rotate\nsteps: 10\n',
    "folded.yaml": "db:\n  {key}: >-\n    {value}\n  port: 5432\n",
    "literal.yaml": "db:\n  {key}: |\n    {value}\n  port: 5432\n",
    "k8s.yaml": "env:\n  - name: {KEY}\n    value: {value}\n  - name: STEPS\n",
    "compose.yaml": "environment:\n  - {KEY}={value}\n  - STEPS=10\n",
    "settings.toml": "[db]\n{key} = '{value}'\nport = 5432\n",
    "settings.json": '{{\n  "{camel}": "{value}",\n  "steps": 10\n}}\n',
    "compact.json": '{{"{key}":"{value}","steps":10}}\n',
    "settings.ini": "[db]\n{key} = {value}\nport = 5432\n",
    "app.properties": "spring.{dotted}={value}\nsteps=10\n",
    ".env": "{KEY}={value}\nSTEPS=10\n",
    "job.sh": "#!/bin/bash\nexport {KEY}='{value}'\nexport STEPS=10\n",
    "bare.sh": 'set -e\n{KEY}="{value}" python train.py --steps 10\n',
    "trace.log": "+ export '{KEY}={value}'\n+ STEPS=10\n",
    "docker.log": "docker run -e '{KEY}={value}' --rm image\nsteps 10\n",
    "flag.log": "python train.py --{kebab} '{value}' --steps 10\n",
    "flag_equals.log": "python train.py --{kebab}='{value}' --steps 10\n",
    "Dockerfile": 'FROM python:3.11\nENV {KEY} "{value}"\nRUN steps 10\n',
    "environment.service": '[Service]\nEnvironment="{KEY}={value}"\nsteps=10\n',
    "train.py": "def main():\n    {key} = '{value}'\n    steps = 10\n",
    "call.py": "client = connect(host='x', {key}='{value}', steps=10)\n",
    "environ.py": "import os\nos.environ['{KEY}'] = '{value}'\nsteps = 10\n",
    "setdefault.py": 'os.environ.setdefault("{KEY}", "{value}")\nsteps = 10\n',
    "namespace.log": "Namespace(lr=0.1, {key}='{value}', steps=10)\n",
    "config_repr.log": "config: {{'lr': 0.1, '{key}': '{value}', 'steps': 10}}\n",
    "main.go": 'const {camel} = "{value}"\nvar steps = 10\n',
    "main.js": "const config = {{ {camel}: '{value}', steps: 10 }};\n",
    "main.tf": 'resource "x" "y" {{\n  {key} = "{value}"\n  steps = 10\n}}\n',
    "web.xml": "<config>\n  <{camel}>{value}</{camel}>\n  <steps>10</steps>\n</config>\n",
    "attribute.xml": '<add key="{camel}" value="{value}" />\n<steps>10</steps>\n',
    "lightning.log": "hparams:\n    {key}:     {value}\nsteps: 10\n",
    "escaped.log": 'body "{{\\"{key}\\": \\"{value}\\"}}" sent, steps 10\n',
    "query.log": "GET /run?steps=10&{key}={quoted} 200\n",
    "base64.log": "payload {encoded} done, steps 10\n",
    "notes.md": "Set `{KEY}={value}` first.\nsteps 10\n",
    "setx.bat": 'setx {KEY} "{value}"\nrem steps 10\n',
    "fish.log": "set -x {KEY} '{value}'\nsteps 10\n",
    "helm.log": "helm install x --set {dotted}='{value}' --set steps=10\n",
}
ANYWHERE: Surroundings = {
    "prose.log": "the run was started with {value} by mistake\nsteps 10\n",
    "traceback.log": 'RuntimeError: 401 for "{value}" (see docs)\nsteps 10\n',
    "table.csv": "id,what,n\n1,{value},10\n",
    "url.log": "fetching https://python.org/{value}/x\nsteps 10\n",
}
_KEPT = re.compile(r"steps|STEPS|10\b|port")


@dataclass(frozen=True)
class Strange:
    name: str
    where: str
    text: str
    value: str
    by_shape: bool


def strange_secrets(rounds: int = 3) -> list[Strange]:
    """Every secret in `rounds` surroundings; together every kind of surrounding is there."""
    return _corpus(KEYS_BY_SHAPE, SECRETS_BY_NAME, NAMED, ANYWHERE, rounds)


def blind_secrets(rounds: int = 4) -> list[Strange]:
    """The second corpus, which nobody who wrote a detector had seen."""
    places = blind.NAMED | blind.BY_PLACE
    return _corpus(blind.KEYS_BY_SHAPE, blind.SECRETS_BY_NAME, places, blind.ANYWHERE, rounds)


def _corpus(
    keys: str, names: str, named: Surroundings, anywhere: Surroundings, rounds: int
) -> list[Strange]:
    rng = random.Random(20261117)
    found = []
    by_shape = [(line.split(None, 1), True) for line in keys.strip().splitlines()]
    by_name = [(line.split(None, 1), False) for line in names.strip().splitlines()]
    for (name, shape), shaped in [*by_shape, *by_name]:
        value = drawn(shape.strip(), rng).replace("\\n", "\n")
        places = {**named, **anywhere} if shaped else named
        if "\n" in value:
            places = {"key.log": "read\n{value}\nsteps 10\n", "key.sh": "K='{value}'\nsteps=10\n"}
        order = sorted(places, key=lambda _place: rng.random())
        for where in order[:rounds]:
            text = _placed(places[where], name, value)
            found.append(Strange(name, where, text, value, shaped))
    return found


def drawn(shape: str, rng: random.Random) -> str:
    """The text with each of its drawn parts replaced by random characters of its alphabet."""

    def part(match: re.Match[str]) -> str:
        alphabet, length = _ALPHABETS[match[1]], int(match[2])
        return "".join(rng.choices(alphabet, k=length))

    return re.sub(r"\{([AhUdlbs])(\d+)\}", part, shape)


def _placed(template: str, name: str, value: str) -> str:
    words = name.split("_")
    encoded = base64.b64encode(f"{name}={value}".encode()).decode()
    return template.format(
        key=name,
        KEY=name.upper(),
        kebab="-".join(words),
        dotted=".".join(["app", "_".join(words)]),
        camel=words[0] + "".join(word.title() for word in words[1:]),
        value=value,
        quoted=re.sub(r"[^\w\-.~]", lambda m: f"%{ord(m[0]):02X}", value),
        encoded=encoded,
        Kebab="-".join(word.title() for word in words),
        value64=base64.b64encode(value.encode()).decode(),
        login64=base64.b64encode(f"alice:{value}".encode()).decode(),
    )


def pieces_left(one: Strange, after: str) -> list[str]:
    """Parts of the value that can still be read: of a key, which may begin with the name of its
    service, whole words; of any other secret four letters and digits without a break.
    """
    between = r'[\s"]|\\n' if one.by_shape else r"\\n|[^A-Za-z0-9]"
    words = [word for word in re.split(between, one.value) if len(word) >= 4]
    encoded = (base64.b64encode(text.encode()) for text in (one.value, f"alice:{one.value}"))
    words.extend(text.decode() for text in encoded)
    return [word for word in words if word in after]
