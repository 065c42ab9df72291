"""Another detector looks at what is left: detect-secrets, with the plugins that know a secret by
its shape.
"""

from detect_secrets.core.scan import scan_line
from detect_secrets.settings import transient_settings

from aorta.scrub.scrubber import Scrubber
from support.planted import CORPUS

_PLUGINS = (
    "ArtifactoryDetector AWSKeyDetector AzureStorageKeyDetector BasicAuthDetector CloudantDetector "
    "DiscordBotTokenDetector GitHubTokenDetector GitLabTokenDetector IbmCloudIamDetector "
    "JwtTokenDetector "
    "MailchimpDetector NpmDetector OpenAIDetector PrivateKeyDetector PypiTokenDetector "
    "SendGridDetector "
    "SlackDetector SoftlayerDetector SquareOAuthDetector StripeDetector TelegramBotTokenDetector "
    "TwilioKeyDetector"
)


def test_detect_secrets_finds_nothing_in_scrubbed_text() -> None:
    with transient_settings({"plugins_used": [{"name": name} for name in _PLUGINS.split()]}):
        for planted in CORPUS:
            scrubber = Scrubber()
            scrubber.learn(planted.line)
            for line in scrubber.text(planted.line).text.splitlines():
                assert list(scan_line(line)) == [], planted.name
