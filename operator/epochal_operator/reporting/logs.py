"""Logs: one JSON object a line for machines, plain lines for a terminal."""

import logging

import kopf

from epochal.control.foreign import CleanLines

_NOISY = ("kopf.objects", "kopf.activities", "aiohttp.access", "urllib3.connectionpool")
"""kopf says of each round that it succeeded; our own lines say what happened in it."""


def configure_logs(log_format: str, *, debug: bool) -> None:
    kopf.configure(debug=debug, log_format=kopf.LogFormat.JSON if log_format == "json" else kopf.LogFormat.FULL)
    for handler in logging.getLogger().handlers:
        handler.addFilter(CleanLines())
    if not debug:
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.WARNING)
