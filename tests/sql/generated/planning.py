"""Queries through the planner: each is planned, or refused with a place. Nothing is run."""

import random
import re
from collections import Counter
from dataclasses import dataclass, field

from epochal.sql.errors import SqlError
from epochal.sql.script import plan_text
from tests.sql.generated.data import TABLES
from tests.sql.generated.join_shapes import JOINS
from tests.sql.generated.making import Maker
from tests.sql.generated.queries import Query
from tests.sql.generated.shapes import SHAPES

CONSOLE = "'connector' = 'console'"
PARAMETERS = {"nothing": "/nothing"}


def query_of(seed: int) -> Query:
    maker = Maker(seed)
    return maker.chance.choice((*SHAPES, *JOINS))(maker)


def mangled(text: str, chance: random.Random) -> str:
    """The text with a word or sign lost, doubled or put elsewhere: as people write it."""
    words = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(chance.choice([1, 1, 2, 3])):
        one, other = chance.randrange(len(words)), chance.randrange(len(words))
        match chance.randrange(4):
            case 0:
                words[one] = ""
            case 1:
                words[one] += words[one]
            case 2:
                words[one], words[other] = words[other], words[one]
            case _:
                words[one] = words[other]
    return "".join(words)


def _has_a_place(error: SqlError, text: str) -> bool:
    """In the query: there is nothing wrong with the tables before it."""
    lines = text.split("\n")
    return TABLES.count("\n") + 1 < error.line <= len(lines) and 1 <= error.column <= len(lines[error.line - 1]) + 1


@dataclass(slots=True)
class Planned:
    """How it went: by shape how many are planned, and why the others are refused."""

    planned: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    crashed: list[tuple[str, Exception]] = field(default_factory=list)

    def take(self, text: str, shape: str) -> None:
        try:
            plan_text(text, PARAMETERS)
        except SqlError as error:
            if not _has_a_place(error, text):
                self.crashed.append((text, error))
            self.refused[f"{shape}: {error.reason}"] += 1
        except Exception as error:
            self.crashed.append((text, error))
        else:
            self.planned[shape] += 1


def is_planned(query: Query) -> bool:
    result = Planned()
    result.take(f"{TABLES}\n{query.statements(CONSOLE)}", query.shape)
    return bool(result.planned)


def plan_all(seeds: range, *, mangling: int = 1) -> Planned:
    """Each query as it is, and one in ``mangling`` once more as somebody writes it who does not look."""
    result = Planned()
    for seed in seeds:
        query = query_of(seed)
        text = f"{TABLES}\n{query.statements(CONSOLE)}"
        result.take(text, query.shape)
        if seed % mangling == 0:
            wrong = mangled(query.statements(CONSOLE), random.Random(f"mangled {seed}"))
            result.take(f"{TABLES}\n{wrong}", "mangled")
    return result
