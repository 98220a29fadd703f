"""Laying one part of a pod over another, as `kubectl apply` would: objects field by field, named lists item by item."""

from collections.abc import Mapping
from typing import Any

_KEYS = ("mountPath", "containerPort", "name")
"""What tells the items of a list apart; the first that all items of both sides have."""

_DEEP = ("containers", "initContainers")
"""Lists whose items are laid over each other field by field. Of all others an item replaces its namesake: a volume with
two sources would be refused."""


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid over ``base``: where both say something, ``over`` counts."""
    result = dict(base)
    for name, value in over.items():
        result[name] = _value(name, result[name], value) if name in result else value
    return result


def merged_items(base: list[Any], over: list[Any], *, deep: bool = False) -> list[Any]:
    """The items of both lists, told apart by name; without names, ``over`` alone."""
    key = _key_of(base + over)
    if key is None:
        return over
    result = {item[key]: item for item in base}
    for item in over:
        result[item[key]] = merged(result[item[key]], item) if deep and item[key] in result else item
    return list(result.values())


def _value(name: str, base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return merged(base, over)
    if isinstance(base, list) and isinstance(over, list):
        return merged_items(base, over, deep=name in _DEEP)
    return over


def _key_of(items: list[Any]) -> str | None:
    if not items or not all(isinstance(item, Mapping) for item in items):
        return None
    return next((key for key in _KEYS if all(key in item for item in items)), None)
