"""One piece of SQL in three dialects: as a job has it, as Spark has it over all rows, and as DuckDB does."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

HOLE = "§"


@dataclass(frozen=True, slots=True)
class Text:
    """``duck`` is None where DuckDB has no such words, or means something else by them."""

    stream: str
    batch: str
    duck: str | None

    def only_spark(self) -> "Text":
        return Text(self.stream, self.batch, None)


def same(text: str) -> Text:
    """What means the same to all."""
    return Text(text, text, text)


def spark(text: str) -> Text:
    """What DuckDB does not know."""
    return Text(text, text, None)


def filled(template: str | Text, *parts: Text) -> Text:
    """The template with a part in each of its holes."""
    form = same(template) if isinstance(template, str) else template
    duck: str | None = None
    ducks = [part.duck for part in parts if part.duck is not None]
    if form.duck is not None and len(ducks) == len(parts):
        duck = _put(form.duck, ducks)
    return Text(
        _put(form.stream, [part.stream for part in parts]), _put(form.batch, [part.batch for part in parts]), duck
    )


def _put(template: str, parts: list[str]) -> str:
    pieces = template.split(HOLE)
    assert len(pieces) == len(parts) + 1, (template, parts)
    return pieces[0] + "".join(part + piece for part, piece in zip(parts, pieces[1:], strict=True))


def joined(separator: str, parts: list[Text]) -> Text:
    return filled(separator.join(HOLE for _ in parts), *parts)


def one_of(chance: random.Random, ways: Sequence[Callable[[], Text]]) -> Text:
    return chance.choice(ways)()


NOTHING, WHOLE = same(""), same(HOLE)
