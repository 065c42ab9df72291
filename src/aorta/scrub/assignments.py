"""Values behind a name that announces a secret: `HF_TOKEN=...`, `"clientSecret": "..."`,
`--password ...`, `db_password: >-`, `<password>...</password>`, `- name: API_KEY` and its `value:`.

One reader for YAML, TOML, JSON, INI, shell, Python, XML and command lines: what stands before the
value is always a name and something that joins the two. Standard library only, as `known_keys`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from aorta.scrub.findings import PLACEHOLDER, Kind, SecretSpan, as_looked_at
from aorta.scrub.vocabulary import (
    ALL_BELOW_IS_SECRET,
    announces_secret,
    is_dense,
    is_metavar,
    is_secret_value,
    is_worth_hiding,
    may_announce_secret,
    names_a_password,
)

LOOKED_FOR = "values of names that announce a secret: token, password, pass, pwd, secret, key, ..."

_SPACE = "[^\\S\\r\\n\u2028\u2029]|[\u00ad\u200b-\u200d\u2060\ufeff]"  # NBSP and what is not seen
# The last is the shape of those with a number.
_QUOTE = r"\\*[\"'`]|&quot;|&#x27;|&#39;|&#34;|&apos;|&#x?0;"
_BAR = "[|\u2502\u2503]"
_AFTER_BAR = re.compile(rf"{_BAR}[ \t]*\Z")
_NAME = re.compile(r"[\w.\-]+")
_LONGEST_NAME = 100
_TYPE = r"[&\w.\[]{0,40}(?:[Ss]tr|[Bb]ytes|[Tt]ext|Any|Secret)[\w.\[\]|?]{0,20}(?: \| None)?"
_JOIN = re.compile(
    rf"(?P<closed>(?:{_QUOTE}|[\]\\*]){{0,4}})"
    rf"(?P<join>(?:(?:{_SPACE})(?:for|of) [^\n=:\"']{{1,60}}?"
    rf"(?=(?:{_SPACE})*(?:=|:(?:{_SPACE})*(?:{_QUOTE}))))?"
    rf"(?:{_SPACE}){{0,8}}(?::(?:{_SPACE})*{_TYPE}(?:{_SPACE})*="
    rf"(?=(?:{_SPACE})*[bruf]{{0,2}}(?:{_QUOTE}))"
    rf"|=>|[:?+]{{0,3}}={{1,3}}|!={{1,2}}|:|\uff1a|\uff1d)[*]{{0,2}}"
    rf"(?:{_SPACE})*"
    rf"|(?:{_SPACE}){{0,60}}{_BAR}(?:{_SPACE}){{1,8}}"
    rf"|,\s{{0,4}}(?={_QUOTE})"
    rf"|(?:{_SPACE}){{1,4}}(?:(?:is|was)(?:{_SPACE}|:){{1,3}}|\\\r?\n\s*)?)"
)
_SETS_A_VARIABLE = re.compile(
    r"(?P<surely>(?:environ\.\w+|getenv|putenv|setenv|env_set|set_?env)\(\\*[\"']\Z)|"
    r"[(\[]\\*[\"']\Z"
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
_BLOCK = re.compile(
    r"(?:[!&][\w!.:/\-]*[ \t]+)*(?P<is_block>[|>])[+\-]?\d?[+\-]?[ \t]*(?:#[^\n]*)?\r?\n"
)
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
    rf"[bruf@$]{{0,2}}(?P<quote>{_QUOTE})(?P<value>(?s:(?:''(?=\w)|(?!''\w).){{1,4096}}?))"
    r"(?<!(?<!\\)\\)(?!''\w)(?P=quote)"
)
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
    r"[^\n]*?(?=[ \t]+(?:#|//)|,[ \t]+[\w\"']+[ \t]*[:=]|[ \t]*[,;]?[ \t]*\r?(?:\n|\Z))"
)
_CODE = re.compile(
    r"(?:await |new )?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[(\[]|"
    r"[a-z_]\w*(?:\.[a-z_]\w*)+(?=[)\]}:]*\Z)|lambda\b|\$\("
)
_NO_EXPRESSION = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[^{}%()]{6,}")
_ENDS = re.compile(r"[&;](?=[\w.\-%]+=)|;(?=\s|\Z)|&(?=\s|\Z)|\\[nrt](?=\W|\w+[=:])")
# `<password>`, `<entry key="password">`, `<key>password</key><string>`
_TAG = re.compile(
    r"(?P<closed>)(?P<join></\w+>\s*(?:<(?:string|value)>|\Z)|(?:[\s\"'][^<>\n]{0,200})?(?<!=)>)"
)
# The cell of a table, the text of an element.
_ENCLOSED = {
    "|": re.compile(rf"(?P<value>[^|\u2502\u2503\n]*?)[ \t]*{_BAR}"),
    ">": re.compile(r"\s*(?P<value>[^<>]{2,4096}?)\s*</"),
}
_PAIR_NAME = re.compile(
    rf"\b(?:name|key|variable|type(?=\W{{1,6}}password\b))(?:{_QUOTE})?[ \t]{{0,2}}[:=]"
    rf"[ \t]{{0,2}}(?:{_QUOTE})?(?P<name>[A-Za-z0-9_.\-]++)(?:{_QUOTE})?[ \t]{{0,4}},?"
    r"|^[ \t]*variable[ \t]+\"(?P<terraform>[A-Za-z0-9_.\-]++)\"[ \t]*(?=\{)",
    re.IGNORECASE | re.MULTILINE,
)
# Below the name, with other fields of the same item between, or behind a command of a CI system.
_PAIR_VALUE = re.compile(
    r"(?:[ \t]{0,4}(?:\r?\n|\\{1,4}n)(?:[ \t#]{0,64}(?!value)\w{1,30}:[ \t][^\n]{1,80}\n){0,3})?"
    r"(?:[ \t]*(?!value)[\w\-]{1,30}=\"[^\"\n]{0,80}\"){0,4}[ \t#]{0,64}"
    rf"(?:{_QUOTE})?value(?:{_QUOTE})?\s{{0,2}}[:=][ \t]{{0,4}}"
    r"|(?:;[\w=;]{1,60})?\]|::"
    r"|\{[^{}]{0,400}?\bdefault[ \t]*=[ \t]*",
    re.IGNORECASE,
)
_COMPARED = re.compile(r"[\"'](?P<value>[^\"'\n]{1,120})[\"'][ \t]{0,2}[=!]={1,2}[ \t]{0,2}\Z")
_NO_WORD = re.compile(r"(?=\S*[a-z])(?=\S*[A-Z])(?=\S*[0-9])[^\s=:()\[\]\"'/]{10,}(?![^\s.,;])")
_HEADING = re.compile(
    r"(?i)((?:[\w .\-\"']*+[|\t;,])*)[ \"']*(?:[a-z]+[_\-. ])*(?:password|passwd|pwd|passphrase|"
    r"(?:api|secret|access)[_ ]?key)[ \"']*((?:[|\t;,][\w .\-\"']*)*)\r?"
)
_WORD_AND_VALUE = re.compile(r"[ \t]*(?P<name>[\w.\-]+)[ \t]+\S+[ \t\r]*")
_VALUE_INSIDE = re.compile(
    rf"\{{\s*(?:{_QUOTE})?value(?:{_QUOTE})?\s*[:=]\s*|<<<[ \t]*"
    rf"|(?:\w+\.)?(?:Secret|Sensitive|Password)\w*\((?=[bru]?(?:{_QUOTE}))"
)
# For the shape of a line: what follows stands in the next one.
_COMMA_AT_END = re.compile(rf"(?:{_QUOTE}|[\]\\*]){{0,4}},\s*\Z")
_ROW = (
    r"(?:\n[ \t|+:=]*--[ \t|+:=\-]*\r?)?\n(?:[^{mark}\n]*[{mark}]){{{before}}}[ \"']*"
    r"(?P<value>[^{mark}\s\"']+)[ \"']*(?:[{mark}][^{mark}\n]*){{{after}}}\r?(?=\n|\Z)"
)
_LONGEST, _LONGEST_DENSE = 1 << 16, 1 << 10
_ALSO_ENGLISH = frozenset({"token", "secret", "cookie", "bearer", "credentials", "pass"})
"""`unexpected token: foo` is a message, `token=foo` is not."""


class _Place(NamedTuple):
    """Where a value begins, and what joins it to its name."""

    name: str
    at: int
    separator: str  # "" where only a space joins them
    spaced: bool  # a space on both sides, as INI and TOML have it
    certain: bool  # not an English word in front of a colon
    is_flag: bool  # of a command line, where nothing is an expression
    at_key: bool  # nothing but the name stands before it in its line
    in_list: bool  # of a URL's query or a connection string
    in_string: bool  # a quote is open in front of the name
    quote: str  # around both: `'NAME=value'`
    indent: int


def assigned_in(text: str, *, quoted_only: bool = False) -> Iterator[SecretSpan]:
    """`quoted_only`: for source code."""
    done = 0
    for line in sorted(as_looked_at(text).lines_like(_names_a_secret)):
        for name in _NAME.finditer(text, *line):
            # All of a secret goes: what looks like a name inside of it needs no second look.
            if name.start() < done or not _may_be_secret_name(name.group()):
                continue
            for found in _secrets_at(text, _place(text, name), quoted_only):
                done = found.end
                yield found
            compared = _COMPARED.search(text, max(line[0], name.start() - 200), name.start())
            if compared and announces_secret(name.group()) and is_worth_hiding(compared["value"]):
                yield _span(text, compared.start("value"), compared.end("value"))
        for pair in _PAIR_NAME.finditer(text, *line):
            if value := _PAIR_VALUE.match(text, pair.end()):
                named = pair["name"] or pair["terraform"]
                place = _Place(
                    named, value.end(), ":", False, True, False, True, False, False, "", 0
                )
                yield from _secrets_at(text, place, quoted_only)
    yield from _below_headings(text)


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
            if is_worth_hiding(found["value"]) and not found["value"].isalpha():
                yield _span(text, *found.span("value"))


@lru_cache(maxsize=1 << 14)
def _names_a_secret(shape: str) -> bool:
    """Of the shape of a line: it holds a name that may announce a secret, with a value before or
    behind it; or the name of a pair.
    """
    for name in _NAME.finditer(shape):
        if _may_be_secret_name(name.group()) and (
            _joined(shape, name)
            or _COMMA_AT_END.match(shape, name.end())
            or _COMPARED.search(shape, 0, name.start())
        ):
            return True
    return any(
        _may_be_secret_name(pair["name"] or pair["terraform"])
        for pair in _PAIR_NAME.finditer(shape)
    )


@lru_cache(maxsize=1 << 16)
def _may_be_secret_name(name: str) -> bool:
    return announces_secret(name) or may_announce_secret(name) or name == "PWD"


def _joined(text: str, name: re.Match[str]) -> re.Match[str] | None:
    in_tag = text[name.start() - 1 : name.start()] in ("<", ">", '"', "'")
    return (in_tag and _TAG.match(text, name.end())) or _JOIN.match(text, name.end())


def _place(text: str, found: re.Match[str]) -> _Place | None:
    match = _joined(text, found)
    begin, name = found.start(), found.group()
    if match is None or len(name) > _LONGEST_NAME:
        return None
    if text[begin - 1 : begin] == "<" and PLACEHOLDER.match(text, begin - 1):
        return None
    if name.lower() == "key" and text.endswith("cache ", 0, begin):
        return None
    join = (match["join"].split() or [""])[-1]
    is_flag = name.startswith("-")
    near = max(0, begin - 48)
    if join in ("", "\\") and not is_flag and not _SETS_BY_SPACE.search(text, near, begin):
        # "the password is wrong" is a sentence; `--password x` is not
        if not announces_secret(name) or not _is_told(text, found, match.end()):
            return None
        join = "is"
    if re.fullmatch(_BAR, join):
        if not _AFTER_BAR.search(text, near, begin):
            return None  # a pipe, and no table
        join = "|"
    join = ">" if match.re is _TAG else join
    if join == "," and not is_flag:
        sets = _SETS_A_VARIABLE.search(text, near, begin)
        if sets is None:
            return None  # in a list only a flag, or the setter of a variable, names what follows it
        join = "=" if sets["surely"] else join
    start = text.rfind("\n", 0, begin) + 1
    line = text[start:begin] if begin - start <= 200 else "x"
    return _Place(
        name.lstrip("-"),
        match.end(),
        join.strip("*"),
        match["join"][:1] in " \t\u00a0" and match["join"][-1:].isspace(),
        join not in (":", "is", "was") or bool(match["closed"].strip("*")),
        is_flag,
        _AT_KEY.match(line) is not None,
        text[begin - 1 : begin] in ("?", "&", ";"),
        line.count('"') % 2 == 1 or line.count("'") % 2 == 1,
        "" if match["closed"] else text[begin - 1 : begin].strip("?&;:/.,([{<>= \t\n"),
        len(line) - len(line.lstrip(" \t-")),
    )


def _is_told(text: str, name: re.Match[str], at: int) -> bool:
    """`password 'x' was refused`; `requirepass x` alone in its line; or no word of a sentence."""
    word = (text[at : at + _LONGEST_DENSE].split() or [""])[0].rstrip(".,;)")
    if word.startswith(("'", '"')) or is_dense(word):
        return True
    if names_a_password(name[0]) and _NO_WORD.match(text, at):
        return True
    start, end = text.rfind("\n", 0, name.start()) + 1, text.find("\n", at)
    return _WORD_AND_VALUE.fullmatch(text, start, end if end >= 0 else len(text)) is not None


def _secrets_at(text: str, place: _Place | None, quoted_only: bool) -> Iterator[SecretSpan]:
    if place is None or place.name.lower().endswith("authorization"):
        return  # a header, which has rules of its own
    # Of a connection string, and not the shell's directory.
    surely = announces_secret(place.name) or (place.name == "PWD" and place.in_list)
    if not surely and not may_announce_secret(place.name):
        return
    for found in _values(text, place, surely, quoted_only):
        if _is_secret(place, found.value, surely):
            yield found


def _is_secret(place: _Place, value: str, surely: bool) -> bool:
    if is_metavar(place.name, value):
        return False
    if place.separator == "|":
        return is_dense(value) or (surely and " " not in value and not value.isalpha())
    if place.separator == "," and place.is_flag and surely:
        return not value.startswith("-") and is_secret_value(place.name, value)
    if place.separator in ("is", "was", ","):
        has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
        return is_dense(value) or (surely and has_both and " " not in value and len(value) >= 6)
    if place.name.lower() in _ALSO_ENGLISH and not place.certain:
        return is_worth_hiding(value) and len(value) >= 8 and any(c.isdigit() for c in value)
    return is_secret_value(place.name, value) if surely else is_dense(value)


def _values(text: str, place: _Place, surely: bool, quoted_only: bool) -> Iterator[SecretSpan]:
    at = place.at
    if surely and (inside := _VALUE_INSIDE.match(text, at)):
        at = inside.end()
        place = place._replace(at=at)
    if enclosed := _ENCLOSED.get(place.separator):
        if cell := enclosed.match(text, at):
            yield _span(text, *cell.span("value"))
        return
    if surely and place.separator in (":", "=") and place.at_key:
        opened = _BLOCK.match(text, at) or _NOTHING_MORE.match(text, at)
        if opened:
            yield from _below(text, opened.end(), place, "is_block" in opened.groupdict())
            return
    quoted = _HEREDOC.match(text, at) or _TRIPLE.match(text, at) or _QUOTED.match(text, at)
    if quoted and _closes(text, quoted):
        yield _span(text, quoted.start("value"), quoted.end("value"))
        return
    if surely and place.name.lower() not in _ALSO_ENGLISH and (items := _LIST.match(text, at)):
        for item in _ITEM.finditer(text, *items.span(items.lastgroup or 0)):
            yield _span(text, item.start(), item.end())
        return
    if (found := _bare(text, place, surely)) is None:
        return
    # In source code what has no quotes is an expression, unless it is part of a longer string.
    in_string = place.in_string and _NO_EXPRESSION.fullmatch(found.value)
    if not quoted_only or place.in_list or in_string:
        yield found


def _closes(text: str, quoted: re.Match[str]) -> bool:
    """A value over several lines is believed where nothing but punctuation follows its end."""
    goes_on = quoted["value"].replace("\r", "").replace("\\\n", "")  # behind backslashes
    if "\n" not in goes_on or len(quoted.groupdict().get("quote", "<<<")) == 3:
        return True
    end = text.find("\n", quoted.end())
    rest = text[quoted.end() : len(text) if end < 0 else end]
    return (
        quoted["value"].count("\n") < 40
        and not rest.strip(" \t\r,;)}]")
        and "=" not in quoted["value"][:40]
    )


def _below(text: str, at: int, place: _Place, is_block: bool) -> Iterator[SecretSpan]:
    """The lines of a block, each item of a list, each value of a Kubernetes secret, or the one
    value that stands below its name.
    """
    start = end = -1
    indent = place.indent
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


def _bare(text: str, place: _Place, surely: bool) -> SecretSpan | None:
    found = _word(text, place.at, place.in_list, _LONGEST if surely else _LONGEST_DENSE)
    if found is None or (found.value.startswith("{") and not place.in_list):
        return None  # what is inside of braces has names of its own
    if not place.is_flag and _CODE.match(found.value):
        return None
    if place.in_list and (more := _WORDS_IN_LIST.match(text, found.end)):
        return _span(text, found.start, more.end())
    if surely and place.quote in ("'", '"', "`") and place.separator:
        end = text.find(place.quote, found.end, found.end + 4096)
        if end > found.end and "\n" not in text[found.end : end]:
            return _span(text, found.start, end)
    if not surely or not names_a_password(place.name) or place.in_list:
        return found
    if found.value.isdigit() and not is_secret_value(place.name, found.value):
        return found  # a count, and what follows says of what
    if place.separator == ":" or (place.separator == "=" and place.spaced):
        more = (_REST_OF_LINE if place.at_key else _WORDS_MORE).match(text, found.end)
        return _span(text, found.start, more.end()) if more else found
    return found


def _word(text: str, at: int, in_list: bool, longest: int) -> SecretSpan | None:
    quoted = _QUOTED.match(text, at)
    if quoted and "\n" not in quoted["value"]:
        return _span(text, quoted.start("value"), quoted.end("value"))
    bare = _BARE.match(text, at, min(len(text), at + longest))
    if bare is None:
        return None
    value = bare.group()
    stop = _ENDS.search(value)
    if stop and (in_list or stop.start() > 0):
        value = value[: stop.start()]
    value = value.rstrip(",;)}]\\") if not value.endswith("==") else value
    return _span(text, bare.start(), bare.start() + len(value)) if value else None


def _span(text: str, start: int, end: int) -> SecretSpan:
    return SecretSpan(start, end, Kind.CREDENTIAL, text[start:end])
