"""What gives a secret away: its own shape, or the name it stands behind. One set of rules for every
room.

The scrubber takes secrets out of what ships; a snapshot never lets them in. Imports the standard
library alone, because the snapshot is also taken inside containers.

Own rules, not a library's: `detect-secrets` names the line a secret is on but not where it ends,
sees only the first line of a private key, and knows no credential of the machine-learning world
(see `benchmarks/scrubbing.py`, which counts both on one corpus). It is used in the tests as the
second opinion.
"""

import re
from collections.abc import Iterator, Sequence

from aorta.scrub.findings import Kind, SecretSpan, hinted, hinted_in_line, occurrences, settled
from aorta.scrub.vocabulary import (
    announces_secret,
    is_dense,
    is_secret_value,
    is_worth_hiding,
    may_announce_secret,
    words,
)

_LEFT = r"(?<![A-Za-z0-9])"
_OTHER_PROVIDERS: tuple[str, ...] = (
    r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA)[A-Z2-7]{16}(?![A-Z0-9])",  # AWS
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"gl(?:pat|dt|rt|soat|cbt|ptt|ft|agent|imt)-[A-Za-z0-9_\-]{16,}",
    r"xox[a-z]-[A-Za-z0-9\-]{10,}|xapp-\d-[A-Za-z0-9\-]{10,}",  # Slack
    r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_\-]+",
    r"https://[\w.]*discord(?:app)?\.com/api/webhooks/\d+/[\w\-]+",
    r"https://[\w.\-]+\.webhook\.office\.com/webhookb2/[\w@\-/]+",
    r"[MNO][A-Za-z\d_\-]{23,27}\.[\w\-]{6}\.[\w\-]{27,}",  # Discord
    r"(?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,}",  # Stripe
    (
        r"AIza[A-Za-z0-9_\-]{35}|ya29\.[A-Za-z0-9_\-]{20,}|GOCSPX-[A-Za-z0-9_\-]{20,}|"
        r"1//0[\w\-]{30,}"
    ),  # Google
    r"(?:hf|api_org)_[A-Za-z0-9]{30,}",  # Hugging Face
    r"sk-(?:ant|proj|svcacct|admin|or|None)?-?[A-Za-z0-9_\-]{20,}",  # OpenAI, Anthropic, OpenRouter
    r"nvapi-[A-Za-z0-9_\-]{40,}",  # NVIDIA NGC
    (
        r"(?:gsk|xai|pplx|r8|fw|tgp_v1|csk|jina|wandb_v1|ntn|lsv2_[ps][kt]|pcsk|"
        r"voyage)[_\-][A-Za-z0-9_\-]{28,}"
    ),
    r"local-[0-9a-f]{40}",  # Weights & Biases, own server
    r"dapi[0-9a-f]{32}(?:-\d)?|dkea[0-9a-f]{32}",  # Databricks
    r"do[opr]_v1_[0-9a-f]{64}",  # DigitalOcean
    (
        r"npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_\-]{50,}|rubygems_[0-9a-f]{48}|dckr_(?:pat|"
        r"oat)_[\w\-]{20,}"
    ),
    r"SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}",  # SendGrid
    r"(?:SK|AC)[0-9a-f]{32}(?![0-9a-f])",  # Twilio
    r"\d{8,10}:AA[A-Za-z0-9_\-]{33}",  # Telegram
    r"[0-9a-f]{32}-us\d{1,2}(?!\d)|key-[0-9a-f]{32}(?![0-9a-f])",  # Mailchimp, Mailgun
    r"hv[sbr]\.[A-Za-z0-9_\-]{24,}|[a-zA-Z0-9]{14}\.atlasv1\.[A-Za-z0-9_\-=]{40,}",  # HashiCorp
    # Grafana, New Relic
    r"gls?a_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_[A-Za-z0-9+/=]{32,}|NRAK-[A-Z0-9]{27}",
    r"sntry[su]_[A-Za-z0-9+/=_\-]{40,}|lin_api_[A-Za-z0-9]{40}|dp\.(?:pt|st|ct|sa)\.[\w.\-]{40,}",
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|sq0[a-z]{3}-[\w\-]{22,}|EAAA[\w\-]{60}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{58}",
    r"tskey-[a-z]+-[\w\-]{16,}|sbp_[0-9a-f]{40}|PMAK-[0-9a-f]{24}-[0-9a-f]{34}|pul-[0-9a-f]{40}",
    r"ATATT3[\w\-=]{50,}|pat[A-Za-z0-9]{14}\.[0-9a-f]{64}|HRKU-[\w\-]{30,}|figd_[\w\-]{36,}",
    r"AKC[A-Za-z0-9]{10,}(?![A-Za-z0-9])|cmVmdGtuOj[A-Za-z0-9]{30,}",  # Artifactory
)
_JWT_BEGIN, _JWT_REST = (
    r"eyJ[A-Za-z0-9_\-]{8,}",
    r"\.eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?",
)
PROVIDERS = (*_OTHER_PROVIDERS, _JWT_BEGIN + _JWT_REST)
_LONG_TOKEN = re.compile(r"[A-Za-z0-9_\-.:/+=~@]{13,}")  # no credential is shorter
_OTHER_PROVIDER = re.compile(_LEFT + "(?:" + "|".join(_OTHER_PROVIDERS) + ")")
# What only begins like a JWT is consumed with it: whatever else begins inside would end at the same
# place.
JWT_OR_BEGIN = re.compile(rf"{_LEFT}{_JWT_BEGIN}+(?P<rest>{_JWT_REST})?")
_KEY_BLOCK = hinted(
    r"-----BEGIN (?P<what>[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----(?:(?s:.*?)-----END (?P=what)-----|[A-Za-z0-9+/=\s\\]*)"
    r"|PuTTY-User-Key-File-\d:(?:(?s:.*?)Private-MAC: *[0-9a-f]+|[^\n]*(?:\n[A-Za-z0-9+/=:\- ]+)*)",
    "private key",
    "putty-user-key",
)
_URL_LOGIN = hinted_in_line(
    r"[A-Za-z][A-Za-z0-9+.\-]{1,20}://(?P<value>[^\s/@:\"'<>]*:[^\s\"'<>/@]+)@", "://"
)
_URL_SIGNATURE = hinted_in_line(
    r"[?&;](?:sig|x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|"
    r"signature|code|"
    r"access_token|awsaccesskeyid)=(?P<value>[^\s&\"'<>]{8,})",
    "sig",
    "x-amz-",
    "code=",
    "access_token=",
    "awsaccesskeyid",
    flags=re.IGNORECASE,
)
_HEADER = hinted(
    r"\b(?:authorization|proxy-authorization)[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token|digest|"
    r"negotiate|apikey)?"
    r"\s*(?P<value>[A-Za-z0-9+/_=.~\-]{6,})|\bbearer\s+(?P<bearer>[A-Za-z0-9+/_=.~\-]{16,})"
    r"|\b(?:set-)?cookie\s*:\s*(?P<cookie>[^\r\n\"]+)",
    "authorization",
    "bearer",
    "cookie",
    flags=re.IGNORECASE,
)
_LOGIN_OPTION = hinted(
    r"(?:\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[= ]*|\bsshpass\s+-p\s*|\blogin\s+\S+\s+(?:password|"
    r"passwd)\s+"
    r"|\blogin\b[^\n]{0,200}?\s-p[= ]?\s*|\b(?:mysql\w*|"
    r"mariadb[\w\-]*)\b[^\n]{0,200}?\s-p(?=[^\s\-])"
    r"|\bredis-cli\b[^\n]{0,200}?\s-a\s+)[\"']?(?P<value>[^\s\"']+)"
    r"|\bwandb\s+login\s+(?:--\S+\s+)*(?P<key>[A-Za-z0-9_\-]{20,})",
    "curl",
    "sshpass",
    "login",
    "mysql",
    "mariadb",
    "redis-cli",
)
_ELEMENT = hinted(r"<(?P<name>[\w:.\-]{3,60})>(?P<value>[^<>\n]{2,4096})</", "</")
_PAIR = hinted(
    r"\b(?:name|key|variable)(?:\\?[\"'])?\s{0,2}[:=]\s{0,2}(?:\\?[\"'])?(?P<name>[\w.\-]{3,60})(?:\\?[\"'])?"
    r"[ \t]{0,4},?(?:[ \t]{0,4}(?:\r?\n|"
    r"\\{1,4}n))?[ \t#]{0,64}(?:\\?[\"'])?value(?:\\?[\"'])?\s{0,2}[:=][ \t]{0,4}",
    "value",
    flags=re.IGNORECASE,
)
_ANNOUNCING = tuple(
    sorted(
        words(
            "pass secret token key cred auth dsn cookie bearer session pwd netrc string url salt "
            "pin nonce"
        )
    )
)
_ANNOUNCED = re.compile(
    r"(?P<name>[A-Za-z0-9_.\-]{3,40})(?P<quote>(?:[\"'\\\]]|&quot;|&#x27;|&#39;){0,4})"
    r"(?P<join>\s{0,4}(?:=>|:=|==|=|:)[ \t]{0,4}|,\s{0,4}(?=\\*[\"']|&quot;|&#x27;|&#39;)|"
    r"[ \t]{1,4})"
)
_SETS_A_VARIABLE = re.compile(r"(?:environ\.\w+|getenv|putenv|setenv|env_set)\(\\*[\"']\Z")
_NAME_TAIL = re.compile(r"(?:--?)?[A-Za-z0-9_.\-]{0,60}\Z")
_QUOTED = re.compile(
    r"[bru]{0,2}(?P<quote>\\*[\"'`]|&quot;|&#x27;|&#39;)(?P<value>.*?)(?P=quote)", re.DOTALL
)
_BARE = re.compile(r"(?:[^\s\"'`<]|<(?![/!A-Za-z]))+")
_LONGEST_QUOTED = 4096
_ALSO_ENGLISH = frozenset({"token", "secret", "cookie", "bearer", "credentials"})
"""`unexpected token: foo` is a message, `token=foo` is not."""


def providers_in(text: str) -> Iterator[SecretSpan]:
    """Credentials that their own shape gives away."""
    for token in _LONG_TOKEN.finditer(text):
        for match in _providers_in_token(text, token.start(), token.end()):
            yield SecretSpan(match.start(), match.end(), Kind.CREDENTIAL, match.group())


def _providers_in_token(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """From left to right, none inside another."""
    other, jwt = _OTHER_PROVIDER.search(text, start, end), _jwt_in(text, start, end)
    while other or jwt:
        first = jwt if other is None or (jwt and jwt.start() <= other.start()) else other
        assert first is not None
        yield first
        if other and other.start() < first.end():
            other = _OTHER_PROVIDER.search(text, first.end(), end)
        if jwt and jwt.start() < first.end():
            jwt = _jwt_in(text, first.end(), end)


def _jwt_in(text: str, start: int, end: int) -> re.Match[str] | None:
    found = JWT_OR_BEGIN.finditer(text, start, end)
    return next((match for match in found if match["rest"]), None)


def secrets_in(text: str, secret_names: Sequence[str] = ()) -> Iterator[SecretSpan]:
    """Every secret that its own shape or the words before it give away."""
    yield from providers_in(text)
    for match in _KEY_BLOCK.finditer(text):
        yield SecretSpan(match.start(), match.end(), Kind.CREDENTIAL, match.group())
    for pattern in (_URL_LOGIN, _URL_SIGNATURE, _LOGIN_OPTION, _HEADER):
        for match in pattern.finditer(text):
            group = next(name for name, value in match.groupdict().items() if value is not None)
            if is_worth_hiding(match[group]):
                yield SecretSpan(
                    match.start(group), match.end(group), Kind.CREDENTIAL, match[group]
                )
    for match in _ELEMENT.finditer(text):
        if announces_secret(match["name"]) and is_secret_value(match["name"], match["value"]):
            yield SecretSpan(
                match.start("value"), match.end("value"), Kind.CREDENTIAL, match["value"]
            )
    for match in _PAIR.finditer(text):
        found = _value_at(text, match.end(), False)
        if found and announces_secret(match["name"]) and is_secret_value(match["name"], found[1]):
            yield SecretSpan(found[0], found[0] + len(found[1]), Kind.CREDENTIAL, found[1])
    yield from _announced(text)
    if secret_names:
        yield from _named(text, secret_names)


def _announced(text: str) -> Iterator[SecretSpan]:
    for at in occurrences(text, _ANNOUNCING):
        match = _ANNOUNCED.match(text, at)
        if match is None:
            continue
        head = _NAME_TAIL.search(text, max(0, match.start() - 64), match.start())
        prefix = head.group() if head else ""
        name = prefix + match["name"]
        separator = match["join"].strip()
        begin = at - len(prefix)
        is_flag = name.startswith("-")
        if not separator and not is_flag:
            continue  # "the password is wrong" is a sentence; `--password x` is not
        if separator == "," and not (
            is_flag or _SETS_A_VARIABLE.search(text, max(0, begin - 24), begin)
        ):
            continue  # in a list only a flag, or the setter of a variable, names what follows it
        in_list = begin > 0 and text[begin - 1] in "?&;"
        found = _value_at(text, match.end(), in_list)
        if found is None:
            continue
        start, value = found
        if _is_secret(name.lstrip("-"), value, certain=separator != ":" or bool(match["quote"])):
            yield SecretSpan(start, start + len(value), Kind.CREDENTIAL, value)


def _named(text: str, secret_names: Sequence[str]) -> Iterator[SecretSpan]:
    """`NAME=value` for the names a policy adds."""
    for match in re.finditer(
        r"(?P<name>[A-Za-z_][A-Za-z0-9_.\-]*)[\"']?\s{0,4}[=:][ \t]{0,4}", text
    ):
        if announces_secret(match["name"], secret_names):
            found = _value_at(text, match.end(), False)
            if found and is_worth_hiding(found[1]):
                yield SecretSpan(found[0], found[0] + len(found[1]), Kind.CREDENTIAL, found[1])


def _is_secret(name: str, value: str, *, certain: bool) -> bool:
    if name.lower() in _ALSO_ENGLISH and not certain:
        return is_worth_hiding(value) and len(value) >= 8 and any(c.isdigit() for c in value)
    if announces_secret(name):
        return is_secret_value(name, value)
    return may_announce_secret(name) and is_dense(value)


def _value_at(text: str, at: int, in_list: bool) -> tuple[int, str] | None:
    quoted = _QUOTED.match(text, at, min(len(text), at + _LONGEST_QUOTED))
    if quoted and quoted["value"] and "\n" not in quoted["value"]:
        return quoted.start("value"), quoted["value"]
    bare = _BARE.match(text, at)
    if bare is None:
        return None
    value = bare.group().rstrip(",;)}]\\")
    if in_list:
        value = re.split("[&;]", value, maxsplit=1)[0]
    return (bare.start(), value) if value else None


REDACTED = "<redacted>"
_UNBROKEN = re.compile(r"[A-Za-z0-9+=]{32,}")


def without_secrets(text: str) -> str:
    """The text with every secret in it taken out."""
    for finding in reversed(settled(secrets_in(text), text)):
        text = text[: finding.start] + REDACTED + text[finding.end :]
    return text


def safe_value(name: str, value: str) -> str:
    """The value of a variable as it may be written down. What looks like a key is one, whatever its
    name.
    """
    if announces_secret(name) or may_announce_secret(name):
        return REDACTED
    return _UNBROKEN.sub(_without_key, without_secrets(value))


def _without_key(found: re.Match[str]) -> str:
    return REDACTED if is_dense(found[0]) else found[0]
