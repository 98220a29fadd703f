"""Cutting a pod off the cluster's network, and joining it again: its link is taken from the bridge of all pods."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.layout import POD_BRIDGE
from cluster.node import Node


@contextmanager
def cut_off(node: Node, address: str) -> Iterator[None]:
    """Nothing reaches the pod, and it reaches nothing: neither the API server nor the store nor other pods."""
    link = _link_of(node, address)
    node.namespaces.run(["ip", "link", "set", link, "nomaster"])
    try:
        yield
    finally:
        node.namespaces.run(["ip", "link", "set", link, "master", POD_BRIDGE])


def _link_of(node: Node, address: str) -> str:
    neighbours = json.loads(node.namespaces.run(["ip", "-json", "neigh", "show", address, "dev", POD_BRIDGE]))
    forwarding = json.loads(node.namespaces.run(["bridge", "-json", "fdb", "show", "br", POD_BRIDGE]))
    return next(str(entry["ifname"]) for entry in forwarding if entry["mac"] == neighbours[0]["lladdr"])
