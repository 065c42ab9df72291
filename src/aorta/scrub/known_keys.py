"""Keys known by shape: published prefixes and lengths, JSON web tokens, private keys, random words.

Standard library only: a snapshot of the environment is also taken inside containers.
"""

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from string import ascii_letters, digits

from aorta.scrub.findings import Kind, SecretSpan, as_looked_at
from aorta.scrub.vocabulary import words

LOOKED_FOR = "keys of some ninety services by their shape, JSON web tokens, private keys"

# What the services put in front of a key; behind it stand at least twenty characters, of which one
# is a capital or three are digits.
_PREFIXES = words(
    "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- glrt- glsoat- glcbt- glptt- glft- glagent- "
    "glimt- gloas- glffct- glwt- xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp- "
    "whsec_ ya29. GOCSPX- 1//0 sk- nvapi- gsk_ xai- pplx- r8_ fw_ tgp_v1_ csk- jina_ wandb_v1_ "
    "ntn_ lsv2_pt_ lsv2_sk_ voyage- pcsk_ local- dapi dkea doo_v1_ dop_v1_ dor_v1_ npm_ pypi- "
    "rubygems_ dckr_pat_ dckr_oat_ CLOJARS_ SG. key- hvs. hvb. hvr. gla_ glsa_ glc_ NRAK- NRII- "
    "NRIQ- NRRA- NRJS- sntrys_ sntryu_ lin_api_ dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. "
    "shpat_ shpca_ shppa_ shpss_ sq0atp- sq0csp- sq0idp- EAAC EAAM AGE-SECRET-KEY-1 tskey- sbp_ "
    "sb_secret_ PMAK- pul- ATATT3 ATCTT3 ATBB HRKU- figd_ AKC cmVmdGtuOj v1.0- pnu_ pnb_ EZAK "
    "EZTK dt0c01. dt0s01. rdme_ CFPAT- ops_eyJ sgp_ sha256~ xkeysib- AQVN fo1_ fm1_ fm2_ "
    "pscale_tkn_ pscale_oauth_ pscale_pw_ fio-u- tfp_ aio_ pat. sat. pat- duffel_test_ "
    "duffel_live_ ico- tk-us- rootly_ spu- bkua_ sk_ FLWSECK- FLWSECK_TEST- s-s4t2ud- rpa_ squ_ "
    "sqp_ sqa_ cosmo_ dnkey- akab- SWMTKN-1- nfp_ oy2 apify_api_ PRIVATE- ABSK vercel_ "
    "shippo_live_ shippo_test_"
)
# The others. `@` stands for letters and digits, `#` for small hexadecimal digits, `~` for what
# base64 in a URL is made of.
_SHAPES = r"""
AWS            (?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA)[A-Z0-9]{16}(?![A-Z0-9])
Slack          https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_\-]+
Discord        https://[\w.]*discord(?:app)?\.com/api/webhooks/\d{1,}/~+
Discord        [MNO]~{23,27}\.~{6}\.~{27,}
Teams          https://[\w.\-]+\.webhook\.office\.com/webhookb2/[\w@\-/]+
Telegram       (?:bot)?\d{8,10}:AA~{33}
Mailchimp      #{32}-us\d{1,2}(?!\d)
HashiCorp      @{14}\.atlasv1\.[A-Za-z0-9_\-=]{40,}
New_Relic      @{32}FFFFNRAL
Airtable       pat@{14}\.#{64}
Google         AIza~{35}
Hugging_Face   (?:hf|api_org)_@{30,}
Square         EAAA~{60}
Twilio         (?:SK|AC)[0-9A-Fa-f]{32}(?![0-9a-f])
Alibaba        LTAI@{12,22}
LaunchDarkly   (?:api|sdk|mob)-@{8}-@{4}-@{4}-@{4}-@{12}
Octopus        API-[A-Z0-9]{26,32}(?![A-Z0-9])
Lob            (?:live|test)_(?:pub_)?#{31,35}
others  [a-z]{2,12}_(?:live|test|prod|[aops]at|sec|secret|apikey|tkn|pw)_(?=[A-Za-z]*[0-9])@{10,}
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
_KIND_OF_CHARACTER = str.maketrans(ascii_letters + digits, "a" * 26 + "A" * 26 + "0" * 10)
_WRITTEN_WORD = re.compile(r"[A-Z][a-z]{2,}|[a-z]{4,}")
_OF_WORDS = 0.6  # of a class's name; 2 in 100 drawn keys of 24 characters have as much
_MIXED = 0.45  # of the steps from one character to the next change its kind; 0.62 if drawn by lot


def _expression() -> str:
    shapes = "|".join(line.split(None, 1)[1] for line in _SHAPES.strip().splitlines())
    for short, alphabet in (("@{", "[A-Za-z0-9]{"), ("#{", "[0-9a-f]{"), ("~", r"[\w\-]")):
        shapes = shapes.replace(short, alphabet)
    prefixes = "|".join(map(re.escape, sorted(_PREFIXES, reverse=True)))
    drawn = r"(?=[\w\-.=+/]{0,60}[A-Z]|(?:[a-z_\-.]{0,40}[0-9]){3})"
    behind = rf"(?:(?<=[^A-Za-z0-9])|(?=[A-Za-z0-9]{{12}})){drawn}[\w\-.=+/]{{20,}}"
    return rf"(?<![A-Za-z0-9])(?:{shapes}|(?:{prefixes}){behind}|{_JWT})"


_BY_SHAPE = re.compile(_expression(), re.ASCII)
# The same for the shape of a line: each digit is a 0, and what is repeated may have any length.
_MAY_BE_KEY = re.compile(
    re.sub(r"[0-9]+", "0", re.sub(r"\{[\d,]+\}", "*", _BY_SHAPE.pattern)), re.ASCII
)


def known_keys_in(text: str) -> Iterator[SecretSpan]:
    for first, last in as_looked_at(text).lines_like(_may_hold_key):
        for match in _TOKEN.finditer(text, first, last):
            for start, end in _keys_of(match.group()):
                begin = match.start() + start
                yield SecretSpan(begin, match.start() + end, Kind.CREDENTIAL, match[0][start:end])
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
        right = _AROUND_RIGHT.match(token, run.end())
        start = left.start() if left else run.start()
        if is_drawn(run.group()) and not token.startswith("_Z", start):
            found.append((start, right.end() if right else run.end()))
    return tuple(found)


def is_drawn(word: str) -> bool:
    """A random mix of cases and digits, unlike C++ mangled names and `Qwen2MoeSparseMoeBlock`."""
    written = sum(map(len, _WRITTEN_WORD.findall(word)))
    return _is_mixed(word, len(word)) and written < _OF_WORDS * len(word)


def _is_mixed(word: str, length: int) -> bool:
    """A word of this length, or the shape of one: there are as many changes in that."""
    kinds = word.translate(_KIND_OF_CHARACTER)
    if len(set(kinds)) < 3:
        return False
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    return changes >= _MIXED * (length - 1)
