"""Leaving secrets out of what goes to others.

Two nets. What looks like a secret by its name or shape is replaced; and every value that is known to be one, because a
Secret or a field with such a name holds it, is replaced wherever it appears: in logs, URLs and messages.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

REDACTED = "<redacted>"
SHORTEST = 6
"""Characters. A shorter value would be replaced inside words that have nothing to do with it."""

_NAME = re.compile(
    r"(?i)(passw(or)?d|passwd|\bpwd\b|secret|token|credential|api[-_.]?key|access[-_.]?key|private[-_.]?key|sasl|jaas"
    r"|\bauth(orization)?\b|\bdsn\b|connection[-_.]?string|encryption[-_.]?key|signature|cookie|session[-_.]?key)"
)
_PLAIN = re.compile(r"(?i)(secretname|secretkeyref|credentialssecret|tokenexpiration|automount|maxtokens)")
"""Names of fields that speak of secrets and hold none."""

_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REDACTED),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REDACTED}"),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]+\.[\w-]*"), REDACTED),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), REDACTED),
    (re.compile(r"\b(?:ghp|gho|ghs|glpat|xox[abp]|sk)[-_][A-Za-z0-9_-]{10,}"), REDACTED),
    # user:password@host
    (re.compile(r"(?<=://)[^/\s:@'\"]*:[^/\s@'\"]+(?=@)"), REDACTED),
    # password=…, "secret.key": "…", AccountKey=…, X-Amz-Signature=…
    (
        re.compile(
            r"""(?ix)
            ([\w.\-]*(?:passw(?:or)?d|passwd|pwd|secret|token|credential|api[-_.]?key|access[-_.]?key|account[-_.]?key
            |private[-_.]?key|signature|sas|authorization)[\w.\-]*
            ["']?\s*(?:[:=]|\ is\ )\s*)
            ("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&"'}\])]+)"""
        ),
        rf"\1{REDACTED}",
    ),
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
        return text

    def data(self, value: Any, name: str = "") -> Any:
        """A copy of an object without secrets. Values of variables and of settings that are named like one go whole."""
        if isinstance(value, Mapping):
            if _is_variable(value):
                hide = _sounds_secret(str(value["name"]))
                return {
                    key: REDACTED if key == "value" and hide else self.data(part, key) for key, part in value.items()
                }
            return {
                key: self._field(key, part)
                for key, part in value.items()
                if key not in ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
            }
        if isinstance(value, list):
            return [self.data(item, name) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _field(self, key: str, part: Any) -> Any:
        if isinstance(part, str | int | float) and not isinstance(part, bool) and _sounds_secret(key):
            return REDACTED
        return self.data(part, key)


def secret_values(value: Any) -> Iterable[str]:
    """Values in an object whose names say that they are secret: to be left out elsewhere, too."""
    if isinstance(value, Mapping):
        if _is_variable(value) and _sounds_secret(str(value["name"])):
            yield str(value["value"])
        for key, part in value.items():
            if isinstance(part, str) and _sounds_secret(key):
                yield part
            else:
                yield from secret_values(part)
    elif isinstance(value, list):
        for item in value:
            yield from secret_values(item)


def _is_variable(value: Mapping[str, Any]) -> bool:
    return set(value) == {"name", "value"}


def _sounds_secret(name: str) -> bool:
    return _NAME.search(name) is not None and _PLAIN.search(name) is None
