"""Moments as Kubernetes writes them."""

from datetime import UTC, datetime

from epochal.protocol.decision import Seconds


def timestamp(moment: Seconds) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> Seconds:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
