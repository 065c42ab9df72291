"""Values behind a name that announces a secret: one grammar (name, join, value) for YAML, TOML,
JSON, INI, shell, Python, XML, command lines, tables and sentences. The join says how surely a value
follows; `vocabulary` knows the words. Standard library only, as `known_keys`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

from aorta.scrub.findings import PLACEHOLDER, Kind, SecretSpan, as_looked_at
from aorta.scrub.vocabulary import (
    ALL_BELOW_IS_SECRET,
    ALSO_ENGLISH,
    KEYS_OF_A_PROGRAM,
    NAMES_OF_TWO_WORDS,
    PASSES_OF_A_PROGRAM,
    STATES,
    announces_secret,
    is_dense,
    is_mixed,
    is_secret_value,
    may_announce_secret,
    names_a_password,
)

LOOKED_FOR = "values of names that announce a secret: token, password, pass, pwd, secret, key, ..."


class Join(Enum):
    """What stands between a name and its value, the surest first."""

    ASSIGNED = "= := => or a flag and a space"
    LABELLED = "a colon, which sentences have, too"
    ELEMENT = "the end of a tag"
    CELL = "a bar of a table"
    LISTED = "a comma, and then a string"
    STATED = "words of a sentence, an arrow, a bracket"
    BESIDE = "a space"


_SPACE = "(?:[^\\S\\r\\n\u2028\u2029]|[\u00ad\u200b-\u200d\u2060\ufeff])"  # NBSP, and unseen ones
# The last is the shape of those with a number.
_QUOTE = r"(?:\\*[\"'`]|&quot;|&#x27;|&#39;|&#34;|&apos;|&#x?0;)"
_BAR = "[|\u2502\u2503]"
_NAME = re.compile(rf"\b(?i:{'|'.join(sorted(NAMES_OF_TWO_WORDS))})(?![\w.\-])|[\w.\-]+")
_LONGEST_NAME = 100
_TYPE = r"[&\w.\[]{0,40}(?:[Ss]tr|[Bb]ytes|[Tt]ext|Any|Secret)[\w.\[\]|?]{0,20}(?: \| None)?"
_REMARK = rf"[\w@./\-]{{1,40}}|{_QUOTE}[^\"'`\n]{{1,40}}{_QUOTE}"
_BRACKETS = r"[(\[][^()\[\]\n]{1,40}[)\]]"
# `password for alice on db1: `, `Password (temporary) = `; the name of another value has no space.
_WHOSE = (
    rf"(?:{_SPACE}(?:{_BRACKETS}|(?:for|of|to|on|at|has|changed|reset|set|will|now|used)\b"
    rf"(?:{_SPACE}(?:{_REMARK})){{0,6}}?))"
)
_JOINS = {
    join: re.compile(rf"(?P<closed>(?:{_QUOTE}|[\]\\*]){{0,4}})(?P<join>{pattern})")
    for join, pattern in {
        Join.ASSIGNED: rf"{_SPACE}{{0,60}}(?::{_SPACE}*{_TYPE}{_SPACE}*="
        rf"(?={_SPACE}*[bruf]{{0,2}}{_QUOTE})|=>|[:?+!]{{0,3}}={{1,3}}|"
        rf"(?<=\s)[.]{{4,}}(?=\s)|\uff1a|\uff1d)[*]{{0,2}}"
        rf"{_SPACE}*",
        Join.LABELLED: rf"(?:{_SPACE}#?[0-9]{{1,2}})?{_SPACE}{{0,8}}:[*]{{0,2}}{_SPACE}*",
        Join.CELL: rf"{_SPACE}{{0,60}}{_BAR}{_SPACE}{{1,8}}",
        Join.LISTED: rf",\s{{0,20}}(?=[bru]?{_QUOTE})",
        Join.STATED: rf"{_WHOSE}?(?:{_SPACE}+(?:is|was|are|as|be|to)(?:{_SPACE}|:)+"
        rf"(?:(?:now|set|changed)(?: to)?{_SPACE}+)?|{_SPACE}*(?:-+>|\u2192){_SPACE}*)"
        rf"|{_WHOSE}{_SPACE}*(?::|(?<=\s)=){_SPACE}*|\((?=[bru]?{_QUOTE})",
        Join.BESIDE: rf"{_SPACE}+(?:\\\r?\n\s*|[0-9]{{1,2}} )?",
    }.items()
}
# `<password>`, `<entry key="password">`, `<key>password</key><string>`
_TAG = re.compile(
    r"(?P<closed>)(?P<join></[\w:]+>\s*(?:<\w[^<>\n]{0,80}(?<!/)>|\Z)"
    r"|(?:[\s\"'][^<>\n]{0,200})?(?<![=\-])>)"
)
# For the shape of a line: what follows stands in the next one.
_COMMA_AT_END = re.compile(rf"(?:{_QUOTE}|[\]\\*]){{0,4}},\s*\Z")
_AFTER_BAR = re.compile(rf"{_BAR}[ \t]*\Z")
_SETS_BY_COMMA = re.compile(
    r"(?:environ\.\w+|getenv|putenv|setenv|env_set|set_?env)\(\\*[\"']\Z", re.IGNORECASE
)
_SETS_BY_SPACE = re.compile(
    r"(?:^|\n)[ \t]*(?:machine|login|user|account)[ \t]+\S+[ \t]*\r?\n[ \t]*\Z"
    r"|(?:\bconfig(?:ure)?(?: --?\w+)* +(?:set|add)|\bsetx|\bsetenv|\bset -\w+|\bENV|\bARG"
    r"|\bconfig(?: --?\w+)+)(?: --?\w+)* +\Z"
)
_AT_KEY = re.compile(
    r"[\s\-#>*|+!/;]*(?:(?:export|declare|local|readonly|set|ENV|ARG|const|let|var|final|static|"
    r"private|public|String|\?)\s+)*[\"'`\[]*\Z"
)
_COMPARED = re.compile(r"[\"'](?P<value>[^\"'\n]{1,120})[\"'][ \t]{0,2}[=!]={1,2}[ \t]{0,2}\Z")
# The name is itself a value, and its own value stands behind another name.
_PAIR_NAME = re.compile(
    rf"\b(?:name|key|variable|id|field|type(?=\W{{1,6}}password\b)){_QUOTE}?[ \t]{{0,2}}[:= ]"
    rf"[ \t]{{0,2}}{_QUOTE}?(?P<name>[A-Za-z0-9_.\-]++){_QUOTE}?",
    re.IGNORECASE,
)
_PAIR_VALUE = re.compile(
    r"(?:[ \t]*\{)?(?:(?![{}]|\n[ \t]*-[ \t]|\n[ \t]*\n|\b(?:name|key)\b)(?s:.)){0,300}?"
    rf"\b(?:value|default){_QUOTE}?\s{{0,2}}[:=>]\s{{0,4}}|(?:;[\w=;]{{1,60}})?\]|::",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Place:
    text: str
    name: str
    begin: int  # of the name
    at: int  # of the value
    join: Join
    closed: str  # what closes the name
    gap: str  # between the two

    @property
    def is_flag(self) -> bool:
        """Of a command line, where nothing is an expression."""
        return self.text[self.begin] == "-"

    @cached_property
    def before(self) -> str:
        start = self.text.rfind("\n", 0, self.begin) + 1
        return self.text[start : self.begin] if self.begin - start <= 200 else "x"

    @property
    def at_key(self) -> bool:
        return _AT_KEY.match(self.before) is not None

    @property
    def in_list(self) -> bool:
        """Of a URL's query or a connection string."""
        return self.before[-1:] in ("?", "&", ";")


def assigned_in(text: str, *, quoted_only: bool = False) -> Iterator[SecretSpan]:
    done = 0
    for line in sorted(as_looked_at(text).lines_like(_names_a_secret)):
        for name in _NAME.finditer(text, *line):
            # All of a secret goes: what looks like a name inside of it needs no second look.
            if name.start() < done or not _may_be_secret_name(name.group()):
                continue
            for found in _secrets_at(_place(text, name), quoted_only):
                done = found.end
                yield found
            compared = _COMPARED.search(text, max(line[0], name.start() - 200), name.start())
            if compared and announces_secret(name[0]) and is_secret_value(name[0], compared[1]):
                yield _span(text, *compared.span(1))
        for pair in _PAIR_NAME.finditer(text, *line):
            value = _may_be_secret_name(pair["name"]) and _PAIR_VALUE.match(text, pair.end())
            if value:
                begin, at = pair.start("name"), value.end()
                place = _Place(text, pair["name"], begin, at, Join.ASSIGNED, '"', ": ")
                yield from _secrets_at(place, quoted_only)
    yield from _below_headings(text)


@lru_cache(maxsize=1 << 14)
def _names_a_secret(shape: str) -> bool:
    """Of the shape of a line."""
    for name in _NAME.finditer(shape):
        if _may_be_secret_name(name.group()) and (
            _joined(shape, name)
            or _COMMA_AT_END.match(shape, name.end())
            or _COMPARED.search(shape, 0, name.start())
            or shape[: name.start()].rstrip("\"' \t").endswith((":", "="))
        ):
            return True
    return False


@lru_cache(maxsize=1 << 16)
def _may_be_secret_name(name: str) -> bool:
    return announces_secret(name) or may_announce_secret(name) or name == "PWD"


def _joined(text: str, name: re.Match[str]) -> tuple[Join, re.Match[str]] | None:
    begin, end = name.span()
    if text[begin - 1 : begin] in ("<", ">", ":", '"', "'") and (tag := _TAG.match(text, end)):
        return Join.ELEMENT, tag
    for join, pattern in _JOINS.items():
        if match := pattern.match(text, end):
            return join, match
    return None


def _place(text: str, name: re.Match[str]) -> _Place | None:
    begin = name.start()
    joined = _joined(text, name)
    if joined is None or len(name[0]) > _LONGEST_NAME:
        return None
    if text[begin - 1 : begin] == "<" and PLACEHOLDER.match(text, begin - 1):
        return None
    join, match = joined
    near = max(0, begin - 48)
    words_before = text[near:begin].lower().split()
    of_a_program = {"key": KEYS_OF_A_PROGRAM, "pass": PASSES_OF_A_PROGRAM}
    if words_before and words_before[-1] in of_a_program.get(name[0].lower(), ()):
        return None
    if join is Join.CELL and not _AFTER_BAR.search(text, near, begin):
        return None  # a pipe, and no table
    is_flag = name[0].startswith("-")
    if join in (Join.STATED, Join.BESIDE) and (is_flag or _SETS_BY_SPACE.search(text, near, begin)):
        join, match = Join.ASSIGNED, _JOINS[Join.BESIDE].match(text, name.end()) or match
    if (
        (join is Join.LISTED and (is_flag or _SETS_BY_COMMA.search(text, near, begin)))
        or (join is Join.LABELLED and match["closed"].strip("*"))
        or (join is Join.STATED and "=" in match["join"])
    ):
        join = Join.ASSIGNED
    return _Place(
        text, name[0].lstrip("-"), begin, match.end(), join, match["closed"], match["join"]
    )


_BLOCK = re.compile(r"(?P<is_block>[|>])[+\-]?\d?[+\-]?[ \t]*(?:#[^\n]*)?\r?\n")
_NOTHING_MORE = re.compile(r"[ \t]*(?:#[^\n]*)?\r?\n")
_INDENTED = re.compile(
    r"(?P<indent>[ \t]*)(?P<item>-[ \t]+)?(?P<content>[^\s][^\n]*?)[ \t\r]*(?:\n|\Z)"
)
_KEY = re.compile(
    r"(?P<name>(?P<is_value>[\"']?(?:value|default)[\"']?:\s)|[\"']?[\w.\-]+[\"']?:(?:\s|\Z))|[{\[]"
)
_HEREDOC = re.compile(
    r"<<[\-~]?[ \t]*[\"']?(?P<end>\w+)[\"']?[^\n]*\n"
    r"\s*(?P<value>(?s:.{1,4096}?))\s*^[ \t]*(?P=end)\b",
    re.MULTILINE,
)
_TRIPLE = re.compile(r"[bruf]{0,2}(?P<quote>\"\"\"|''')\s*(?P<value>(?s:.{1,4096}?))\s*(?P=quote)")
_QUOTED = re.compile(
    rf"[bruf@$]{{0,2}}(?P<quote>{_QUOTE})(?!(?P=quote))"
    r"(?P<value>(?:''(?=\w)|(?!''\w).|\\\r?\n){1,4096}?)"
    r"(?<!(?<!\\)\\)(?!''\w)(?P=quote)"
)
_IN_QUOTES = (_HEREDOC, _TRIPLE, _QUOTED)
_STRING = re.compile(r"(?P<quote>[\"'])(?P<value>[^\"'\n]{1,400})(?P=quote)")
# A list, or strings that Python joins.
_LIST = re.compile(
    r"\[(?P<items>[^\[\]\n]{2,4096})\]|"
    r"\((?P<strings>(?:\s*\+?\s*[bru]?(?:\"[^\"\n]*\"|'[^'\n]*'))+)\s*\)"
)
_ITEM = re.compile(r"[^\s,\"'][^,\"'\n]*[^\s,\"']")
_BARE = re.compile(r"(?:[^\s\"'`<\u200b]+|<(?![/!A-Za-z])|(?<=[^\s=:(,])[\"'](?=[^\s,;)}\]]))+")
_WORDS_MORE = re.compile(r"(?:[ \t\u00a0]+(?![\-#|(]|//)[^\s=:,;|\"'<>(){}\[\]]+(?![^\s,;|.\"']))*")
_WORDS_IN_LIST = re.compile(r" [^;&\"'\n]*(?=;)")
_REST_OF_LINE = re.compile(
    r"[^\n]*?(?=[ \t]+(?:#|//|;)|,[ \t]+[\w\"']+[ \t]*[:=]|[ \t]*[,;]?[ \t]*\r?(?:\n|\Z))"
)
_CODE = re.compile(
    r"(?:await |new )?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[(\[]|"
    r"[a-z_]\w*(?:\.[a-z_]\w*)+(?=[)\]}:]*\Z)|lambda\b|\$\(|\{(?:\W|\Z)"
)
_VARIABLE = re.compile(r"[A-Z0-9]+(?:_[A-Z0-9]+)+\Z")
_NO_EXPRESSION = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[^{}%()]{6,}")
_ENDS = re.compile(r"[&;](?=[\w.\-%]+=)|;(?=\s|\Z)|&(?=\s|\Z)|\\[nrt](?=\W|\w+[=:])")
# The cell of a table, the text of an element.
_ENCLOSED = {
    Join.CELL: (re.compile(rf"(?P<value>[^|\u2502\u2503\n]*?)[ \t]*{_BAR}"),),
    Join.ELEMENT: (re.compile(r"\s*(?:<!\[CDATA\[)?(?P<value>[^<>]{2,4096}?)\s*(?:\]\]>)?\s*</"),),
}
# A tag or an anchor of YAML, a default of a shell, a field of JSON, a here-string.
_BEFORE_VALUE = re.compile(
    rf"\\\r?\n\s*|(?:[!&][\w!.:/\-]*[ \t]+)+|\$\{{\w+:?[\-=]|<<<[ \t]*"
    rf"|\{{\s*{_QUOTE}?value{_QUOTE}?\s*[:=]\s*"
)
_HEADING = re.compile(
    r"(?i)((?:[\w .\-\"']*+[|\t;,])*)[ \"']*(?:[a-z]+[_\-. ])*(?:password|passwd|pwd|passphrase|"
    r"(?:api|secret|access)[_ ]?key)[ \"']*((?:[|\t;,][\w .\-\"']*)*)\r?"
)
_ROW = (
    r"(?:\n[ \t|+:=]*--[ \t|+:=\-]*\r?)?\n(?:[^{mark}\n]*[{mark}]){{{before}}}[ \"']*"
    r"(?P<value>[^{mark}\s\"']+)[ \"']*(?:[{mark}][^{mark}\n]*){{{after}}}\r?(?=\n|\Z)"
)
_LONGEST, _LONGEST_DENSE = 1 << 16, 1 << 10


def _secrets_at(place: _Place | None, quoted_only: bool) -> Iterator[SecretSpan]:
    if place is None or place.name.lower().endswith("authorization"):
        return  # a header, which has rules of its own
    surely = announces_secret(place.name) or place.name == "PWD"
    if place.join in (Join.STATED, Join.BESIDE) and not surely:
        return
    for found in _values(place, surely, quoted_only):
        if _is_secret(place, found, surely):
            yield found


def _is_secret(place: _Place, found: SecretSpan, surely: bool) -> bool:
    value = found.value
    if is_dense(value) and not place.is_flag:
        return is_secret_value(place.name, value)
    if not surely or not is_secret_value(place.name, value):
        return False
    is_english = place.name.lower() in ALSO_ENGLISH
    if place.join is Join.BESIDE:
        rest = place.text[found.end : found.end + 100].partition("\n")[0]
        alone = not place.before.strip() and not rest.strip()
        return is_mixed(value) and (not is_english or alone)
    if place.join is Join.CELL:
        return " " not in value and not value.isalpha()
    if place.join in (Join.STATED, Join.LISTED):
        return is_mixed(value) or value.isdigit()
    if place.join is Join.LABELLED and value.lower().split()[0] in STATES:
        return False
    if is_english and place.join is Join.LABELLED:
        return len(value) >= 8 and any(c.isdigit() for c in value)
    return not (place.is_flag and place.gap[:1] == "," and value.startswith("-"))


def _values(place: _Place, surely: bool, quoted_only: bool) -> Iterator[SecretSpan]:
    text, at = place.text, place.at
    if surely and (before := _BEFORE_VALUE.match(text, at)):
        at = before.end()
    if surely and place.join in (Join.ASSIGNED, Join.LABELLED) and place.at_key:
        opened = _BLOCK.match(text, at) or _NOTHING_MORE.match(text, at)
        if opened:
            yield from _below(text, opened.end(), place, "is_block" in opened.groupdict())
            return
    enclosed = (one.match(text, at) for one in _ENCLOSED.get(place.join, _IN_QUOTES))
    if whole := next(filter(None, enclosed), None):
        yield _span(text, *whole.span("value"))
        return
    if place.join in _ENCLOSED:
        return
    if surely and place.name.lower() not in ALSO_ENGLISH and (items := _LIST.match(text, at)):
        for item in _ITEM.finditer(text, *items.span(items.lastgroup or 0)):
            yield _span(text, item.start(), item.end())
        return
    found = _word(text, at, place.in_list, _LONGEST if surely else _LONGEST_DENSE)
    if found is not None:
        yield from _unquoted(place, found, surely, quoted_only)


def _unquoted(
    place: _Place, found: SecretSpan, surely: bool, quoted_only: bool
) -> Iterator[SecretSpan]:
    """A word, or what is no name in an expression: `getenv("TOKEN") or "..."`."""
    text, at = place.text, found.start
    is_code = _CODE.match(found.value) is not None and not is_dense(found.value)
    if place.is_flag or place.in_list or not is_code:
        # In source code a word is an expression, unless it is part of a longer string.
        is_open = any(place.before.count(quote) % 2 for quote in ("'", '"'))
        in_string = is_open and _NO_EXPRESSION.fullmatch(found.value)
        if not quoted_only or place.in_list or in_string:
            yield _with_more_words(place, found) if surely else found
        return
    if not surely or place.name.lower() in ALSO_ENGLISH:
        return
    end = text.find("\n", at)
    for string in _STRING.finditer(text, at, end if end >= 0 else len(text)):
        value = string["value"]
        if is_mixed(value) and not _VARIABLE.match(value) and not _may_be_secret_name(value):
            yield _span(text, *string.span("value"))


def _below(text: str, at: int, place: _Place, is_block: bool) -> Iterator[SecretSpan]:
    """Lines of a block, items of a list, values of a Kubernetes secret, or the one value below."""
    start = end = -1
    indent = len(place.before) - len(place.before.lstrip(" \t-"))
    while (line := _INDENTED.match(text, at)) is not None:
        inside = len(line["indent"]) > indent or (line["item"] and len(line["indent"]) >= indent)
        if not inside or at == len(text):
            break
        content = line["content"]
        if line["item"] and not is_block:
            item = content.strip("\"'")
            begin = line.start("content") + content.find(item)
            if not re.match(r"[\w.\-]+:(?:\s|\Z)", item):
                yield _span(text, begin, begin + len(item))
        elif not is_block and (key := _KEY.match(content)):
            if key["is_value"] or (key["name"] and place.name in ALL_BELOW_IS_SECRET):
                begin = line.start("content") + key.end()
                item = content[key.end() :].strip("\"' ")
                begin = text.find(item, begin)
                yield _span(text, begin, begin + len(item))
            elif start >= 0 or not key["name"]:
                break
        else:
            start = line.start("content") if start < 0 else start
            end = line.end("content")
            if not is_block and text[start] in "\"'":
                start, end = start + 1, end - (text[end - 1] == text[start])
        at = line.end()
    if start >= 0:
        yield _span(text, start, end)


def _with_more_words(place: _Place, found: SecretSpan) -> SecretSpan:
    """A passphrase has several, as has a value inside of quotes or between semicolons."""
    text = place.text
    if place.in_list:
        more = _WORDS_IN_LIST.match(text, found.end)
        return _span(text, found.start, more.end()) if more else found
    around, gap = place.before[-1:], place.gap
    if not place.closed and around in ("'", '"', "`") and place.join is not Join.BESIDE:
        end = text.find(around, found.end, found.end + 4096)
        if end > found.end and "\n" not in text[found.end : end]:
            return _span(text, found.start, end)
    is_spaced = (gap[:1] + gap[-1:]).isspace() or ":" in gap
    is_key = place.join in (Join.ASSIGNED, Join.LABELLED) and names_a_password(place.name)
    if is_key and is_spaced and is_secret_value(place.name, found.value):
        more = (_REST_OF_LINE if place.at_key else _WORDS_MORE).match(text, found.end)
        return _span(text, found.start, more.end()) if more else found
    return found


def _word(text: str, at: int, in_list: bool, longest: int) -> SecretSpan | None:
    bare = _BARE.match(text, at, min(len(text), at + longest))
    if bare is None:
        return None
    value = bare.group()
    stop = _ENDS.search(value)
    if stop and (in_list or stop.start() > 0):
        value = value[: stop.start()]
    value = value.rstrip(",;)}]\\") if not value.endswith("==") else value
    return _span(text, bare.start(), bare.start() + len(value)) if value else None


def _below_headings(text: str) -> Iterator[SecretSpan]:
    """Of a table (CSV, Markdown, a database's answer) the column whose heading names a password."""
    end = 0
    for line in sorted(as_looked_at(text).lines_like(_HEADING.fullmatch)):
        heading = _HEADING.fullmatch(text, *line)
        if heading is None or line[0] < end:
            continue
        before, after = (len(re.findall(r"[|\t;,]", part)) for part in heading.groups())
        mark = heading[1][-1:] or heading[2][:1] or "\n"
        row = re.compile(_ROW.format(mark=mark, before=before, after=after))
        end = line[1]
        while found := row.match(text, end):
            end = found.end()
            if is_secret_value("password", found["value"]) and not found["value"].isalpha():
                yield _span(text, *found.span("value"))


def _span(text: str, start: int, end: int) -> SecretSpan:
    return SecretSpan(start, end, Kind.CREDENTIAL, text[start:end])
