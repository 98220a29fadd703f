"""Leaving secrets out of what goes to others.

Two nets. What looks like a secret by its name or shape is replaced; and every value that is known to be one, because a
Secret or a field with such a name holds it, is replaced wherever it appears: in logs, URLs and messages. Values of
environment variables go whatever their names.
"""

import base64
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

REDACTED = "<redacted>"
SHORTEST = 6
"""Characters. A shorter value would be replaced inside words that have nothing to do with it."""

_PART = re.compile(
    r"(?i)passw|passphrase|passfile|passcode|secret|token|credential|sasl|jaas|signature|cookie|connection[-_.]?string"
    r"|(api|access|account|private|encryption|enc|session|signing|storage|shared|master|hmac|client|ssh|ssl|tls)[-_.]?key"
)
_WORDS = {"pass", "pwd", "pat", "auth", "authorization", "dsn", "sas", "sig", "webhook"}
"""Each as a word of its own: `brokerPass` and `db_pass`, and not `bypass`."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PLAIN = re.compile(r"(?i)(secretname|secretkeyref|credentialssecret|tokenexpiration|automount|maxtokens)")
"""Names of fields that speak of secrets and hold none."""
_SETTINGS = {"parameters", "sparkConf", "spark_conf"}
"""Fields with names that people choose. Elsewhere, `key` is a word of Kubernetes."""
_OURS = "EPOCHAL_"

_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REDACTED),
    (re.compile(r"(?i)\b(bearer|basic|apikey)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REDACTED}"),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]+\.[\w-]*"), REDACTED),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), REDACTED),
    (re.compile(r"\b(?:gh[oprsu]|github_pat|glpat|npm|pypi|xapp|xox[abp]|sk)[-_][A-Za-z0-9_-]{10,}"), REDACTED),
    (re.compile(r"(?i)(?<=hooks\.slack\.com/services/)[\w/-]+"), REDACTED),
    # user:password@host and token@host, whatever is in the password. An image's digest is none.
    (re.compile(r"(?<!pullable://)(?<=://)(?:[^\s'\"<>]*:[^\s'\"<>]*|[^\s'\"<>/@]{16,})(?=@)"), REDACTED),
)
_PAIR = re.compile(
    # password=…, "secret.key": "…", AccountKey=…, X-Amz-Signature=…
    r"""(?x)
    (?<![\w.\-]) (?P<name>[\w.\-]{1,200}) ["']? [ \t]* (?:[:=]|\ is\ ) [ \t]*
    (?P<value>"(?:[^"\\]|\\.)*" | ''(?:[^']|'(?!'))+'' | '(?:[^'\\]|\\.)*' | [^\s,;&"'}\])]+)"""
)


class Redaction:
    """Remembers what must not be seen."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def know(self, values: Iterable[object]) -> None:
        for value in values:
            text = str(value).strip()
            if len(text) >= SHORTEST and text != REDACTED:
                self._known.add(text)
                # Of a file with several lines, such as a key, each line may be logged.
                self._known.update(line.strip() for line in text.splitlines() if len(line.strip()) >= 16)

    def know_secret(self, secret: Mapping[str, Any]) -> None:
        """All values of a Secret, as they are and as the API has them."""
        for encoded in (secret.get("data") or {}).values():
            try:
                self.know([encoded, base64.b64decode(encoded).decode("utf-8")])
            except ValueError:
                self.know([encoded])

    def text(self, text: str) -> str:
        for value in sorted(self._known, key=len, reverse=True):
            text = text.replace(value, REDACTED)
        for shape, instead in _SHAPES:
            text = shape.sub(instead, text)
        return _without_pairs(text)

    def data(self, value: Any, name: str = "", *, settings: bool = False) -> Any:
        """A copy of an object without secrets. Values of variables and of settings that are named like one go whole."""
        if isinstance(value, Mapping):
            if _is_variable(value):
                hide = not str(value["name"]).startswith(_OURS) or sounds_secret(str(value["name"]))
                return {
                    key: REDACTED if key == "value" and hide else self.data(part, key) for key, part in value.items()
                }
            inside = settings or name in _SETTINGS
            return {
                key: REDACTED if _is_secret(key, part, inside) else self.data(part, key, settings=inside)
                for key, part in value.items()
                if key not in ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
            }
        if isinstance(value, list):
            return [self.data(item, name, settings=settings) for item in value]
        return self.text(value) if isinstance(value, str) else value


def secret_values(value: Any, name: str = "") -> Iterable[str]:
    """Values in an object whose names say that they are secret: to be left out elsewhere, too."""
    if isinstance(value, Mapping):
        if _is_variable(value) and sounds_secret(str(value["name"]), setting=True):
            yield str(value["value"])
        for key, part in value.items():
            if isinstance(part, str) and _is_secret(key, part, name in _SETTINGS):
                yield part
            else:
                yield from secret_values(part, key)
    elif isinstance(value, list):
        for item in value:
            yield from secret_values(item, name)


@functools.lru_cache(maxsize=4096)
def sounds_secret(name: str, *, setting: bool = False) -> bool:
    """``setting``: it is a name that somebody chose, such as a parameter's, and may be just ``key``."""
    if _PLAIN.search(name):
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    return (
        _PART.search(name) is not None
        or not _WORDS.isdisjoint(words)
        or (setting and words[-1:] == ["key"])  # SIGNING_KEY, and not partition.key.column
    )


def _is_secret(name: str, value: Any, setting: bool) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and sounds_secret(name, setting=setting)


def _is_variable(value: Mapping[str, Any]) -> bool:
    return set(value) == {"name", "value"}


def _without_pairs(text: str) -> str:
    """Without the values of names that sound secret. What has another name may hold such pairs itself."""
    parts: list[str] = []
    done = at = 0
    while found := _PAIR.search(text, at):
        if sounds_secret(found["name"]):
            parts += (text[done : found.start("value")], REDACTED)
            done = at = found.end()
        else:
            at = found.start("value")
    return "".join((*parts, text[done:]))
