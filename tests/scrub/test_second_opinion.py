"""Another detector looks at what is left: detect-secrets, with the plugins that know a secret by its
shape or by the keyword in front of it.
"""

import re

from detect_secrets.core.scan import scan_line
from detect_secrets.settings import transient_settings

from aorta.scrub.files import Account, FileScrubber
from aorta.scrub.scrubber import Scrubber
from support.planted import CORPUS
from support.strange_secrets import blind_secrets, strange_secrets

_PLUGINS = (
    "ArtifactoryDetector AWSKeyDetector AzureStorageKeyDetector BasicAuthDetector CloudantDetector "
    "DiscordBotTokenDetector GitHubTokenDetector GitLabTokenDetector IbmCloudIamDetector "
    "JwtTokenDetector "
    "MailchimpDetector NpmDetector OpenAIDetector PrivateKeyDetector PypiTokenDetector "
    "SendGridDetector "
    "SlackDetector SoftlayerDetector SquareOAuthDetector StripeDetector TelegramBotTokenDetector "
    "TwilioKeyDetector KeywordDetector"
)


def test_detect_secrets_finds_nothing_in_scrubbed_text() -> None:
    """What KeywordDetector still reports is a placeholder, or the keyword's own quotes."""
    planted = [(one.name, "x.log", one.line) for one in CORPUS]
    planted += [(one.name, one.where, one.text) for one in (*strange_secrets(), *blind_secrets())]
    with transient_settings({"plugins_used": [{"name": name} for name in _PLUGINS.split()]}):
        for name, where, text in planted:
            files = FileScrubber(Scrubber())
            files.learn(where, [text.encode()], ours=False)
            after = b"".join(files.scrub(where, [text.encode()], Account(), ours=False)).decode()
            for line in after.splitlines():
                found = [one.secret_value or "" for one in scan_line(line)]
                assert [one for one in found if not re.search("SECRET[:_]", one)] == [], (
                    name,
                    where,
                    line,
                )
