"""Keys that their own shape gives away: the prefixes and lengths that services publish, JSON web
tokens, private keys, and long words that nobody wrote by hand.

Standard library only: a snapshot of the environment is also taken inside containers.
"""

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache

from aorta.scrub.findings import Kind, Rule, SecretSpan, as_looked_at
from aorta.scrub.vocabulary import words

LOOKED_FOR = "keys of some ninety services by their shape, JSON web tokens, private keys"

# One service a line. `@` stands for letters and digits, `#` for small hexadecimal digits, `~` for
# what base64 in a URL is made of.
_SERVICES = r"""
AWS            (?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA)[A-Z2-7]{16}(?![A-Z0-9])
GitHub         gh[pousr]_@{30,}|github_pat_[A-Za-z0-9_]{22,}
GitLab         gl(?:pat|dt|rt|soat|cbt|ptt|ft|agent|imt|oas|ffct|wt)-~{16,}
Slack          xox[a-z]-[A-Za-z0-9\-]{10,}|xapp-\d{1}-[A-Za-z0-9\-]{10,}
Slack          https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_\-]+
Discord        https://[\w.]*discord(?:app)?\.com/api/webhooks/\d{1,}/~+
Discord        [MNO]~{23,27}\.~{6}\.~{27,}
Teams          https://[\w.\-]+\.webhook\.office\.com/webhookb2/[\w@\-/]+
Stripe         (?:sk|rk|pk)_(?:live|test|prod)_@{10,}|whsec_[A-Za-z0-9+/=]{20,}
Google         AIza~{35}|ya29\.~{20,}|GOCSPX-~{20,}|1//0~{30,}
Hugging_Face   (?:hf|api_org)_@{30,}
OpenAI         sk-(?:ant|proj|svcacct|admin|or|None)?-?~{20,}
NVIDIA         nvapi-~{40,}
models         (?:gsk|xai|pplx|r8|fw|tgp_v1|csk|jina|wandb_v1|ntn|lsv2_[ps][kt]|voyage)[_\-]~{22,}
Pinecone       pcsk_~{28,}
W&B            local-#{40}
Databricks     dapi#{32}(?:-\d{1})?|dkea#{32}
DigitalOcean   do[opr]_v1_#{64}
packages       npm_@{36}|pypi-~{50,}|rubygems_#{48}|dckr_(?:pat|oat)_~{20,}|CLOJARS_@{60}
SendGrid       SG\.~{16,}\.~{16,}
Twilio         (?:SK|AC)#{32}(?![0-9a-f])
Telegram       (?:bot)?\d{8,10}:AA~{33}
Mailchimp      #{32}-us\d{1,2}(?!\d)
Mailgun        key-#{32}(?![0-9a-f])
HashiCorp      hv[sbr]\.~{24,}|@{14}\.atlasv1\.[A-Za-z0-9_\-=]{40,}
Grafana        gls?a_@{32}_#{8}|glc_[A-Za-z0-9+/=]{32,}
New_Relic      NR(?:AK|II|IQ|RA|JS)-~{18,}|@{32}FFFFNRAL
Sentry         sntry[su]_[A-Za-z0-9+/=_\-]{40,}
Linear         lin_api_@{40}
Doppler        dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.\-]{40,}
Shopify        shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}
Square         sq0[a-z]{3}-~{22,}|EAAA~{60}
age            AGE-SECRET-KEY-1[A-Z0-9]{58}
Tailscale      tskey-[a-z]+-~{16,}
Supabase       sbp_#{40}|sb_secret_~{20,}
Postman        PMAK-#{24}-#{34}
Pulumi         pul-#{40}
Atlassian      ATATT3[\w\-=]{50,}|ATCTT3[\w\-=]{50,}
Airtable       pat@{14}\.#{64}
Heroku         HRKU-~{30,}
Figma          figd_~{36,}
Artifactory    AKC@{10,}(?![A-Za-z0-9])|cmVmdGtuOj@{30,}
Cloudflare     v1\.0-#{24}-#{146}
Prefect        pn[ub]_@{36}
EasyPost       EZ[AT]K@{54}
Dynatrace      dt0[a-z]\d{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}
ReadMe         rdme_@{70}
Shippo         shippo_(?:live|test)_#{40}
Contentful     CFPAT-~{43}
1Password      ops_eyJ[A-Za-z0-9+/]{100,}={0,3}
Sourcegraph    sgp_(?:#{16}_|local_)?#{40}
OpenShift      sha256~~{43}
Brevo          xkeysib-#{64}-@{16}
Yandex         AQVN~{35,38}
Fly            f[om][12]_~{40,}
PlanetScale    pscale_(?:tkn|oauth|pw)_[\w.=\-]{32,}
Frame.io       fio-u-~{60,}
Typeform       tfp_[\w.\-]{40,}
Adafruit       aio_@{28}
Harness        (?:pat|sat)\.@{22}\.#{24}\.@{20}
Alibaba        LTAI@{16,22}
Duffel         duffel_(?:test|live)_~{43}
Infracost      ico-@{32}
Scaleway       tk-us-~{40,}
Bitbucket      ATBB@{24,}
LaunchDarkly   (?:api|sdk|mob)-@{8}-@{4}-@{4}-@{4}-@{12}
Rootly         rootly_#{64}
Spectral       spu-#{32}
Buildkite      bk[a-z]{2}_@{40}
Meta           EAA[MC]@{60,}
ElevenLabs     sk_#{48}
Flutterwave    FLWSECK(?:_TEST)?-@{12,32}-X
HubSpot        pat-[a-z]{2}\d{1}-#{8}-#{4}-#{4}-#{4}-#{12}
Octopus        API-[A-Z0-9]{26,32}(?![A-Z0-9])
Intra          s-s4t2ud-#{64}
Lob            (?:live|test)_(?:pub_)?#{31,35}
RunPod         rpa_[A-Z0-9]{32,}
others         [a-z]{2,12}_(?:live|[aops]at|sec|secret|apikey|tkn|pw)_(?=[A-Za-z]{0,40}[0-9])@{14,}
"""
# The bounds keep a text that only begins like one, again and again, from taking long.
_JWT = r"eyJ[A-Za-z0-9_\-]{8,4096}\.eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?"
_TOKEN = re.compile(r"[A-Za-z0-9_\-.:/+=~@]{13,}")  # no key is shorter
# Also the end of one whose beginning stands in the part of a log that is left out.
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<what>[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----"
    r"(?:(?s:.*?)-----END (?P=what)-----|[A-Za-z0-9+/=\s\\]*)"
    r"|PuTTY-User-Key-File-\d:(?:(?s:.*?)Private-MAC: *[0-9a-f]+|[^\n]*(?:\n[A-Za-z0-9+/=:\- ]+)*)"
    r"|^(?:[ \t]*[A-Za-z0-9+/]{40,128}\r?\n){1,200}(?:[ \t]*[A-Za-z0-9+/=]{1,128}\r?\n)?"
    r"[ \t]*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----",
    re.MULTILINE,
)
_SHORTEST_DRAWN = 20
_RUN = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{{_SHORTEST_DRAWN},}}(?![A-Za-z0-9])")
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z0-9]+")
_AROUND_LEFT, _AROUND_RIGHT = re.compile(r"[A-Za-z0-9_\-+]*\Z"), re.compile(r"[A-Za-z0-9_\-+/=]*")
_KIND_OF_CHARACTER = str.maketrans(
    dict.fromkeys(map(ord, "abcdefghijklmnopqrstuvwxyz"), "a")
    | dict.fromkeys(map(ord, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), "A")
    | dict.fromkeys(map(ord, "0123456789"), "0")
)
_WRITTEN_WORD = re.compile(r"[A-Z][a-z]{2,}|[a-z]{4,}")
_OF_WORDS = 0.6  # of a class's name; 2 in 100 drawn keys of 24 characters have as much
_MIXED = 0.45  # of the steps from one character to the next change its kind; 0.62 if drawn by lot


def _expression(table: str) -> str:
    shapes = [line.split(None, 1)[1] for line in table.strip().splitlines()]
    text = "|".join(shapes).replace("sha256~~", "sha256\0~")
    for short, alphabet in (("@{", "[A-Za-z0-9]{"), ("#{", "[0-9a-f]{"), ("~{", r"[\w\-]{")):
        text = text.replace(short, alphabet)
    text = text.replace("~+", r"[\w\-]+").replace("\0", "~")
    return rf"(?<![A-Za-z0-9])(?:{text}|{_JWT})"


_BY_SHAPE = re.compile(_expression(_SERVICES), re.ASCII)
# The same for the shape of a line: each digit is a 0, and what is repeated may have any length.
_MAY_BE_KEY = re.compile(
    re.sub(r"[1-9]", "0", re.sub(r"\{[\d,]+\}", "*", _BY_SHAPE.pattern)), re.ASCII
)


def _is_whole_without_break(value: str, _match: re.Match[str]) -> bool:
    """A key that is one only together with what stands on the next line."""
    first, *rest = re.split(r"\\?\s+", value)
    return not _BY_SHAPE.search(first) and _BY_SHAPE.fullmatch(first + "".join(rest)) is not None


_BEGUN = words(
    "AKIA ASIA ghp_ gho_ ghs_ ghu_ github_pat_ glpat- xoxb- xoxp- sk- sk_live_ rk_live_ hf_ nvapi- "
    "gsk_ AIza eyJ dckr_pat_ npm_ pypi- SG. dapi r8_ wandb_v1_ shpat_ hvs."
)
_BROKEN = Rule(
    rf"(?<![A-Za-z0-9])(?P<value>(?:{'|'.join(map(re.escape, sorted(_BEGUN)))})[\w\-.]{{0,200}}"
    r"\\?\r?\n[ \t]*[\w\-.]{4,400})",
    re.sub("[1-9]", "0", "|".join(sorted(_BEGUN)).lower()),
    flags=re.ASCII,
    over=480,
    is_private=_is_whole_without_break,
)


def known_keys_in(text: str) -> Iterator[SecretSpan]:
    looked_at = as_looked_at(text)
    for first, last in looked_at.lines_like(_may_hold_key):
        for match in _TOKEN.finditer(text, first, last):
            for start, end in _keys_of(match.group()):
                begin = match.start() + start
                yield SecretSpan(begin, match.start() + end, Kind.CREDENTIAL, match[0][start:end])
    yield from _BROKEN.found_in(looked_at)
    if "PRIVATE KEY" in text or "PuTTY-User-Key" in text:
        for match in _PRIVATE_KEY.finditer(text):
            yield SecretSpan(match.start(), match.end(), Kind.CREDENTIAL, match.group())


@lru_cache(maxsize=1 << 14)
def _may_hold_key(shape: str) -> bool:
    return _MAY_BE_KEY.search(shape) is not None or any(
        _is_mixed(run, _SHORTEST_DRAWN) for run in _LETTERS_AND_DIGITS.findall(shape)
    )


@lru_cache(maxsize=1 << 16)
def _keys_of(token: str) -> tuple[tuple[int, int], ...]:
    found = [match.span() for match in _BY_SHAPE.finditer(token)]
    for run in _RUN.finditer(token):
        if any(start <= run.start() < end for start, end in found):
            continue
        left = _AROUND_LEFT.search(token, max(0, run.start() - 64), run.start())
        start = left.start() if left else run.start()
        right = _AROUND_RIGHT.match(token, run.end())
        end = right.end() if right else run.end()
        if is_drawn(run.group()) and not token.startswith("_Z", start):
            found.append((start, end))
    return tuple(found)


def is_drawn(word: str) -> bool:
    """Small letters, capitals and digits in such a mixture as nobody writes by hand; a mangled
    name of C++ has few changes between them, `Qwen2MoeSparseMoeBlock` is made of words.
    """
    written = sum(map(len, _WRITTEN_WORD.findall(word)))
    return _is_mixed(word, len(word)) and written < _OF_WORDS * len(word)


def _is_mixed(word: str, length: int) -> bool:
    """A word of this length, or the shape of one: there are as many changes in that."""
    kinds = word.translate(_KIND_OF_CHARACTER)
    if len(set(kinds)) < 3:
        return False
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    return changes >= _MIXED * (length - 1)
