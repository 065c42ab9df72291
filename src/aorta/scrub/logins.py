"""Logins in URLs, headers, command lines of known programs, and user-password pairs in source code.

Standard library only, as `known_keys`.
"""

import re
from collections.abc import Iterator
from functools import partial

from aorta.scrub.findings import Rule, SecretSpan
from aorta.scrub.vocabulary import is_worth_hiding

LOOKED_FOR = "logins in URLs, HTTP headers, cookies, command lines and pairs of user and password"

_login = partial(Rule, is_private=lambda value, _match: is_worth_hiding(value))
_QUOTE = r"\\*[\"']"
_PAIRS = r"auth|basic_?auth|http_?auth|\w*basicauth|\w*credentials?|creds|login|userpwd"
_COMMANDS = _login(
    r"(?:\bcurl\b[^\n]{0,200}?\s(?:-u|--user|--proxy-user)[= ]*"
    r"|\bldap\w+\b[^\n]{0,200}?\s-w\s*|\bsshpass\s+-p\s*|\blogin\s+\S+\s+(?:password|passwd)\s+"
    r"|\bmc\s+(?:alias\s+set|config\s+host\s+add)\s+\S+\s+\S+\s+\S+\s+"
    r"|\bsudo\s+-S\b[^\n]{0,200}?<<<\s*"
    r"|\blogin\b[^\n]{0,200}?\s-p[= ]?\s*"
    r"|\b(?:mysql\w*|mariadb[\w\-]*)\b[^\n]{0,200}?\s-p(?=[^\s\-])"
    r"|\b(?:un)?zip\b[^\n]{0,200}?\s-P\s*|\b7z\w*\s[^\n]{0,200}?\s-p(?=[^\s\-])"
    r"|\bnet use (?:\S+\s+\S+\s+(?=\S+\s+/user:)|[^\n]{0,120}?/user:\S+\s+(?!/))"
    r"|\boathtool\b[^\n]{0,80}?\s(?:-b|--base32)\s+"
    r"|\bredis-cli\b[^\n]{0,200}?\s-a\s+|\bhttps?\s[^\n]{0,200}?-a\s+(?=\S+:)"
    r"|\b(?:add_user|change_password|net user)\s+\S+\s+(?=\S*[0-9])"
    r"|\bhtpasswd\s+-(?:\w*n\w*|\w*b\w*\s+\S+)\s+\S+\s+"
    r"|\bopenssl\b[^\n]{0,200}?(?:\bpass:|\s-k\s+)|\bssh-keygen\b[^\n]{0,200}?\s-N\s+)"
    r"[\"']?(?P<value>[^\s\"']+)"
    r"|\b(?:wandb|vault|hf|cli)\s+login\s+(?:--\S+\s+)*"
    r"(?P<key>(?=[\w.]*[0-9])[A-Za-z0-9_.\-]{12,})"
    r"|\bConvertTo-SecureString\b[^\"'\n]{0,40}[\"'](?P<secure>[^\"'\n]+)"
    r"|\bsnmp\w+\b[^\n]{0,200}?\s-[AX]\s+[\"']?(?P<snmp>[^\s\"']+)"
    r"(?:[^\n]{0,80}?\s-[AX]\s+[\"']?(?P<snmp_too>[^\s\"']+))?"
    r"|\becho\s+[\"']?(?P<echoed>[^\s\"'|]+)[\"']?\s*\|\s*(?:sudo\s+-S|\w+\s+login|\S*passwd)",
    "oathtool|curl|ldap|sshpass|login|mysql|mariadb|redis-cli|http|add_user|change_password|pass:|"
    "sudo|"
    "openssl|ssh-keygen|passwd|mc alias|mc config|zip|0z|net use|securestring|snmp",
)
_RULES = (
    # A password may hold a slash or an at-sign.
    _login(
        r"[A-Za-z][A-Za-z0-9+.\-]{1,20}://(?P<value>[^\s/@:\"'<>]*:(?:[^\s\"'<>/@]+(?=@)|"
        r"[^\s\"'<>]{1,128}(?=@[\w.\-]+(?::\d+)?(?:[/?\"'\s]|\Z))))",
        "://",
    ),
    # Oracle's: a name, a slash, a password and the place.
    _login(
        r"(?:\bjdbc:oracle:\w+:|\b(?:sqlplus|sqlldr|expdp|impdp|rman)\b[^\n]{0,80}?\s[\"']?)"
        r"[\w$#.\-]+/(?P<value>[^\s/@\"'][^\s@\"']*)@",
        "jdbc:oracle|sqlplus|sqlldr|expdp|impdp|rman",
    ),
    _login(r"\bhttps?://(?P<value>[A-Za-z0-9_\-]{16,})@", "://"),
    _login(
        r"[?&;](?:sig|x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|"
        r"signature|code|access_token|awsaccesskeyid|apikey|token)=(?P<value>[^\s&\"'<>]{8,})",
        "sig|x-amz-|code=|token=|awsaccesskeyid|apikey=",
        flags=re.IGNORECASE,
    ),
    _login(
        r"\b(?:proxy-)?authorization[\"'\\]{0,4}\s*[:=,]\s*(?:[bfru]{0,2}[\"'\\]{1,4})?"
        r"(?:(?:bearer|basic|token|digest|negotiate|ntlm|apikey|aws4-hmac-sha256)\s+)?"
        r"(?P<value>(?!(?:bearer|basic|token|digest|negotiate|ntlm|apikey)\b)"
        r"[A-Za-z0-9+/_=.~\-]{6,}(?:[ \t]*,[ \t]*\w+=[^\s,\"']+)*)"
        r"|\bbearer\s+(?P<bearer>[A-Za-z0-9+/_=.~\-]{16,})"
        r"|\b(?:basic|auth plain)\s+(?P<basic>(?=\w*[0-9=])[A-Za-z0-9+/]{12,}={0,2})(?![A-Za-z0-9])"
        r"|\b(?:set-)?cookie[\"']?\s*:\s*[\"']?(?P<cookie>[^\r\n\"']+)",
        "authorization|bearer|basic|auth plain|cookie",
        flags=re.IGNORECASE,
    ),
    _COMMANDS,
    _login(
        rf"\b(?:{_PAIRS}|\w*authentication)"
        rf"[\"'\]]{{0,2}}\s*[=:]?\s*[(\[]\s*[bru]?{_QUOTE}[^\"'\n]*{_QUOTE}\s*,\s*"
        rf"[bru]?{_QUOTE}(?P<value>[^\"'\n]+?){_QUOTE}"
        rf"|[.:](?:auth|login)\(\s*{_QUOTE}(?P<alone>(?=\w*[0-9])[^\"'\n]+?){_QUOTE}\s*\)"
        rf"|\b(?:URL(?:\.create)?|connect)\(\s*(?:{_QUOTE}[^\"'\n]*{_QUOTE}\s*,\s*){{2}}"
        rf"{_QUOTE}(?P<third>(?=[^\"'\n]*[0-9])[^\"'\n]+?){_QUOTE}",
        "auth|cred|login|userpwd|url(|url.create(|connect(",
        flags=re.IGNORECASE,
    ),
    _login(
        r"(?i)\buser(?:name)?\s+\S+\s+pass(?:word|wd)?\s+"
        r"(?=\S*[0-9!#$%^&*~+])[\"']?(?P<value>[^\s\"']+)"
        r"|\b(?:auth[=:]|cred(?:ential)?s?[:= ])\s*[\w.@\-]+(?::| ?/ ?)"
        r"(?P<of_pair>(?=\S*[A-Za-z])(?=\S*[0-9])[^\s\"']{4,})",
        " pass|auth=|auth:|cred",
    ),
    # What expect, pexpect and their like answer to a prompt.
    _login(
        r"(?:assword|assphrase|asscode)\b[^\n]{0,60}\n?[^\n]{0,40}?\bsend\w*(?: --)?[ (]\s*"
        r"[bru]?[\"'](?P<value>[^\"'\n]+?)(?:\\[rn])*[\"']",
        "assword|assphrase|asscode",
        over=200,
    ),
    # Whatever the program: `-u USER -p PASSWORD`, where `-p 22` and `-p 80:80` are ports.
    _login(
        r"\s-[uU][= ]?\s*[\w.@\\\-]+\s+-[pP]\s*[\"']?"
        r"(?P<value>(?![\d:.]+(?:\s|/|\Z)|[\-/])[^\s\"']+)"
        r"|\s-U\s*[\"']?[\w.\\/\-]+%(?P<after_percent>[^\s\"']+)"
        r"|\s-u\s*[\w.@\-]+,(?P<after_comma>(?=\S*[0-9])[^\s\"']+)"
        r"|^[ \t]+(?:-u|--user|--proxy-user)[= ]*[\"']?[^\s:\"']*:"
        r"(?P<after_colon>[0-9]*[^\s\"'0-9][^\s\"']*)",
        "-u",
        flags=re.MULTILINE,
    ),
    _login(
        r"\b(?:identified\s+(?:with\s+\S+\s+)?(?:by|as)|pragma\s+(?:re)?key|"
        r"(?:with|login|encrypted)\s+password|"
        r"set\s+password\b[^'\n]*)"
        r"(?:\s*=\s*|\s+)N?(?:'(?P<value>(?:[^'\n]|'')+)'|\"(?P<quoted>[^\"\n]+)\")",
        "identified|password|pragma",
        flags=re.IGNORECASE,
    ),
    # host:port:database:user:password, the whole line of a .pgpass; a backslash escapes a colon
    _login(
        r"^(?:[\w.\-]+|\*):(?:[0-9]+|\*):(?:[\w\-]+|\*):(?:[\w\-]+|\*):"
        r"(?P<value>(?:[^\s:\\]|\\.){4,})$",
        shape=r"^[\w.\-*]+:[0*]:[\w\-*]+:[\w\-*]+:(?:[^\s:\\]|\\.)+$",
        flags=re.MULTILINE,
    ),
    # The key behind an account of Twilio; what crypt makes of a password.
    _login(
        r"\bAC[0-9a-f]{32}\W{1,6}(?P<value>[0-9a-f]{32})\b"
        r"|(?P<crypted>\$(?:apr1|argon2\w*|2[abxy]?|[1567y])\$[\w./$=,+\-]{20,})",
        shape=r"\bAC[0-9a-f]|\$\w+\$",
    ),
    # Docker's login; Redis' command and its list of users.
    _login(
        r"\"auth\"\s*:\s*\"(?P<value>[A-Za-z0-9+/]{8,}={0,2})\""
        r"|\"AUTH\"(?: \"[^\"\n]*\")? \"(?P<sent>[^\"\n]+)\""
        r"|^user \S+ (?:on |off )?(?:\S+ )*?>(?P<listed>\S+)",
        '"auth"|user ',
        flags=re.MULTILINE,
    ),
    # The line of a browser's cookie file: seven fields between tabs.
    _login(
        r"^(?:#HttpOnly_)?\S+\t(?:TRUE|FALSE)\t\S+\t(?:TRUE|FALSE)\t[0-9]+\t\S+\t(?P<value>\S+)$",
        "true\t0\t|false\t0\t",
        flags=re.MULTILINE,
    ),
)


# `['sshpass', '-p', '...']`, as Python prints a command.
_WORD = r"(?:'[^'\n]{1,400}'|\"[^\"\n]{1,400}\")"
_PRINTED_COMMAND = re.compile(rf"\[{_WORD}(?:, {_WORD})+\]")
_BETWEEN_WORDS = re.compile(r"[\"'], [\"']")


def logins_in(text: str) -> Iterator[SecretSpan]:
    for one in _RULES:
        yield from one.found_in(text)
    for printed in _PRINTED_COMMAND.finditer(text):
        typed = _BETWEEN_WORDS.sub(" " * 4, printed[0])
        for span in _COMMANDS.found_in(typed):
            start, end = span.start + printed.start(), span.end + printed.start()
            yield span._replace(start=start, end=end)
