"""A second corpus: secrets and surroundings that whoever wrote the detectors had not seen.

Shapes, names and file formats are facts that the test suites of gitleaks, trufflehog and
detect-secrets cover; no text of theirs is here. It was written down, and committed, before the
detectors were read. `strange_secrets` explains the notation. The first look is kept in
benchmarks/results/blind_secrets.txt.
"""

KEYS_BY_SHAPE = """
circleci_personal                CCIPAT_{A22}_{h40}
heroku_oauth                     HRKU-AA{b58}
posthog_personal                 phx_{A43}
openrouter                       sk-or-v1-{h64}
openai_service                   sk-svcacct-{b74}T3BlbkFJ{b74}
openai_admin                     sk-admin-{b58}T3BlbkFJ{b58}
anthropic_admin                  sk-ant-admin01-{b93}AA
elevenlabs                       sk_{h48}
buildkite_agent                  bkua_{h40}
supabase                         sbp_{h40}
square_secret                    sq0csp-{b43}
grafana_cloud                    glc_eyJ{s80}==
gitlab_oauth_secret              gloas-{h64}
gitlab_job                       glcbt-{A2}_{b20}
gitlab_feed                      glft-{b20}
gitlab_scim                      glsoat-{b20}
gitlab_cluster_agent             glagent-{b50}
gitlab_incoming_mail             glimt-{b25}
shopify_shared_secret            shpss_{h32}
shopify_custom_app               shpca_{h32}
aws_service_bearer               ABIA{U16}
aws_bedrock                      ABSK{s109}=
clickhouse_cloud                 4b1d{A38}
settlemint                       sm_pat_{A16}
sentry_user                      sntryu_{h64}
docker_organisation              dckr_oat_{b32}
digitalocean_refresh             dor_v1_{h64}
planetscale_password             pscale_pw_{A43}
bitbucket_app                    ATBB{A32}
atlassian_service                ATCTT3xFfG{b180}={h8}
razorpay                         rzp_live_{A14}
flutterwave                      FLWSECK-{h32}-X
new_relic_insert                 NRII-{b32}
new_relic_licence                {h32}FFFFNRAL
salesforce_access                00D{A12}!{A96}
authress                         sc_{l10}.{A4}.acc_{A10}.{b40}
fly_machine                      fm2_{s120}
slack_workflow                   https://hooks.slack.com/workflows/T{U8}/A{U10}/{d18}/{A24}
slack_configuration              xoxe.xoxp-1-{A163}
apify                            apify_api_{A36}
ramp                             ramp_sec_{A48}
rootly                           rootly_{h64}
hubspot_private_app              pat-na1-{h8}-{h4}-{h4}-{h4}-{h12}
stripe_payment_intent            pi_{A24}_secret_{A25}
tines_webhook                    https://acme.tines.com/webhook/{h32}/{h32}
mapbox_secret                    sk.eyJ{b80}.{b22}
octopus_deploy                   API-{U26}
maxmind_licence                  {A6}_{A29}_mmk
jfrog_reference                  cmVmdGtu{A56}
vault_legacy                     s.{d2}{A22}
defined_networking               dnkey-{b26}-{b52}
microsoft_logic_app              https://prod-07.westeurope.logic.azure.com/workflows/{h32}/x?sig={b43}
ec_private_key                   -----BEGIN EC PRIVATE KEY-----\\n{s64}\\n{s64}\\n{s30}==\\n-----END EC PRIVATE KEY-----
pgp_private_block                -----BEGIN PGP PRIVATE KEY BLOCK-----\\n\\n{s64}\\n{s64}\\n={s4}\\n-----END PGP PRIVATE KEY BLOCK-----
"""

SECRETS_BY_NAME = """
apikey                           {A32}
my_password_super_secure         {l8}{d3}
db_pass_secure                   {l6}#{d4}
cloudant_pw                      {h64}
iam_password                     {b44}
coshmac_secret_key               {h48}
softlayer_pwd                    {h64}
slapikey                         {h64}
shared_access_key                {s43}=
cloudflare_global_api_key        {h37}
twitter_access_token_secret      {A45}
trello_token                     {h64}
gitlab_private_token             {b20}
confluent_api_secret             {s64}
snyk_token                       {h8}-{h4}-{h4}-{h4}-{h12}
codecov_upload_token             {h8}-{h4}-{h4}-{h4}-{h12}
mattermost_access_token          {l13}{d13}
okta_api_token                   00{b40}
artifactory_password             {A24}
pgpassword                       {l7}{d3}!
mysql_pwd                        {l9}{d1}
sshpass                          {A9}
ldap_bind_pw                     {l6}@{d4}
admin_pw                         {A11}
auth_token                       {A30}
access_credentials               {A22}
unlock_passcode                  {d8}
master_key                       {h64}
rpc_secret                       {A18}
storepass                        {l8}{d2}
keypass                          {l8}{d2}
encryption_passphrase            {l6}-{l5}-{l7}
client_assertion_secret          {A40}
hmac_secret                      {s43}=
cohere_api_token                 {A40}
kaggle_key                       {h32}
"""

# the value stands under the secret's own name
NAMED = {
    "profile.ps1": '$env:{KEY} = "{value}"\n$steps = 10\n',
    "Client.cs": 'string {camel} = @"{value}";\nint steps = 10;\n',
    "compare.js": 'if ({camel} === "{value}") {{ steps = 10 }}\n',
    "reversed.go": 'if "{value}" == {camel} {{ steps = 10 }}\n',
    "short.go": '{camel} := "{value}"\nsteps := 10\n',
    "settings.rb": ":{key} => '{value}',\n:steps => 10\n",
    "config.php": "define('{KEY}', '{value}');\n$steps = 10;\n",
    "Makefile": "{KEY} ?= {value}\nSTEPS ::= 10\n",
    "Main.java": 'props.setProperty("{dotted}", "{value}");\nint steps = 10;\n',
    "java.log": "exec java -D{dotted}='{value}' -Dsteps=10 -jar x.jar\n",
    "main.rs": 'let {key} = String::from("{value}");\nlet steps = 10;\n',
    "variables.tf": 'variable "{key}" {{\n  default = "{value}"\n}}\n# steps 10\n',
    "indented.ini": "[db]\n{key} =\n    {value}\nsteps = 10\n",
    "binary.yaml": "{key}: !!binary {value64}\nsteps: 10\n",
    "secret.yaml": "kind: Secret\ndata:\n  {camel}: {value64}\nsteps: 10\n",
    "header.log": "> GET /run HTTP/1.1\n> X-{Kebab}: {value}\n> X-Steps: 10\n",
    "workflow.yml": "- run: ./x\n  env:\n    {KEY}: {value}\n    STEPS: 10\n",
    "form.html": '<input type="hidden" name="{key}" value="{value}" />\n<p>steps 10</p>\n',
    "task.json": '[{{"name": "{KEY}", "value": "{value}"}}, {{"name": "STEPS", "value": "10"}}]\n',
    "typed.py": '{KEY}: Final[str] = "{value}"\nSTEPS: Final[int] = 10\n',
    "bytes.py": '{key} = b"{value}"\nsteps = 10\n',
    "getenv.py": 'token = os.getenv("{KEY}", "{value}")\nsteps = 10\n',
    "arguments.py": 'parser.add_argument("--{kebab}", default="{value}")\nsteps = 10\n',
    "change.diff": '-{key} = "{value}"\n+{key} = load()\n steps = 10\n',
    "kubectl.log": "kubectl create secret generic x --from-literal={kebab}='{value}' -n steps10\n",
    "table.log": "| {key} | {value} |\n| steps | 10 |\n",
    "boxed.log": "│ {key:<28} │ {value} │\n│ steps │ 10 │\n",
    "wandb.yaml": "{key}:\n  desc: null\n  value: {value}\nsteps:\n  value: 10\n",
    "logged.json": '{{"level": "info", "msg": "{KEY}={value} set", "steps": 10}}\n',
    "stack.log": "    {key} = '{value}'\n    steps = 10\n",
}
# the surroundings themselves say that it is one
BY_PLACE = {
    ".netrc": "machine api.acme.test\n  login alice\n  password {value}\n# steps 10\n",
    ".pgpass": "db.acme.test:5432:train:alice:{value}\n",
    ".npmrc": "//npm.acme.test/:_authToken={value}\nsteps=10\n",
    "docker.json": '{{"auths": {{"https://acme.test/v1/": {{"auth": "{login64}"}}}}, "steps": 10}}\n',
    "curl.log": "curl -s -u 'elastic:{value}' https://acme.test:9200/x?steps=10\n",
    "continued.log": 'curl -X POST https://acme.test \\\n  --user "api:{value}" \\\n  -d steps=10\n',
    "jdbc.log": "jdbc:sqlserver://db:1433;databaseName=x;user=sa;password={value};steps=10\n",
    "odbc.log": "Driver=x;Server=db;Uid=alice;Pwd={value};Steps=10\n",
    "azure.log": "DefaultEndpointsProtocol=https;AccountName=a10;AccountKey={value};x=STEPS\n",
    "redis.log": "acme.redis.cache.windows.net:6380,password={value},ssl=True,steps=10\n",
    "broker.log": "connecting to amqps://alice:{quoted}@mq:5671/v, steps 10\n",
    "signed.log": "GET https://a.blob.core.windows.net/c?sv=2022&sig={quoted}&sr=b&steps=10\n",
    "sshpass.log": "sshpass -p '{value}' ssh alice@login train --steps 10\n",
    "mysql.log": "mysql -u root -p'{value}' -e 'select 10'\n",
    "user.sql": "CREATE USER alice IDENTIFIED BY '{value}';\nSELECT 10;\n",
    "role.sql": "ALTER ROLE alice WITH PASSWORD '{value}';\nSELECT 10;\n",
    "playbook.yml": "- mysql_user: name=alice password={value} priv=*.*:ALL\n  steps: 10\n",
    "bind.log": "ldapsearch -x -D cn=admin,dc=acme -w '{value}' -b dc=acme steps10\n",
}
# nothing but the key's own shape says so
ANYWHERE = {
    "notebook.ipynb": '{{"source": ["client = Client(\\"{value}\\")\\n", "steps = 10\\n"]}}\n',
    "argument.log": "Traceback: Client('{value}') at 0x7f10, steps 10\n",
    "glued.log": "headers=[('Accept', '*/*'), ('X', '{value}')] steps=10\n",
}
