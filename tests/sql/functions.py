"""Functions that the tests' SQL uses."""


def shout(word: str | None) -> str | None:
    return None if word is None else f"{word}!"
