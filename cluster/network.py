"""The pair of links that joins the node's network with the machine's, and the machine's routes through it.

Nothing here outlives the node: the kernel removes both links, and the routes with them, when its network ends.
"""

import json
import subprocess
from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Any

from cluster.control_plane_config import SERVICES
from cluster.errors import ClusterError
from cluster.layout import HOST_ADDRESS, HOST_LINK, JOINT, NODE_ADDRESS, NODE_LINK, PODS
from cluster.namespaces import Namespaces

RANGES = (JOINT, PODS, IPv4Network(SERVICES))


def join(namespaces: Namespaces) -> None:
    """Set up links, addresses and routes, unless they are there."""
    if _ip("-json", "link", "show", "dev", HOST_LINK, may_fail=True):
        # Half of it may be there from a run that was cut short: only as a whole it is good.
        if _complete(namespaces):
            return
        _ip("link", "delete", HOST_LINK)
    _refuse_taken_ranges()
    _ip("link", "add", HOST_LINK, "type", "veth", "peer", "name", NODE_LINK, "netns", str(namespaces.init))
    _ip("address", "add", f"{HOST_ADDRESS}/{JOINT.prefixlen}", "dev", HOST_LINK)
    _ip("link", "set", HOST_LINK, "up")
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{NODE_ADDRESS}/{JOINT.prefixlen}", "dev", NODE_LINK],
        ["ip", "link", "set", NODE_LINK, "up"],
        ["ip", "route", "replace", "default", "via", HOST_ADDRESS],
        ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"],
    ):
        namespaces.run(command)
    for network in (PODS, IPv4Network(SERVICES)):
        _ip("route", "replace", str(network), "via", NODE_ADDRESS)


def overlapping(routes: Sequence[dict[str, Any]]) -> list[str]:
    """Routes of the machine, as `ip -json route` tells them, that lead into the cluster's ranges elsewhere."""
    found = []
    for route in routes:
        target = route["dst"]
        if target == "default" or route.get("dev") == HOST_LINK:
            continue
        if any(IPv4Network(target, strict=False).overlaps(network) for network in RANGES):
            found.append(f"{target} by {route.get('dev', 'another way')}")
    return found


def _refuse_taken_ranges() -> None:
    taken = overlapping(json.loads(_ip("-json", "-4", "route", "show") or "[]"))
    if taken:
        raise ClusterError(
            f"the machine has routes into the cluster's addresses ({', '.join(map(str, RANGES))}): "
            f"{', '.join(taken)}. Stop what made them (another cluster, a VPN, a container network) and try again"
        )


def _complete(namespaces: Namespaces) -> bool:
    routes = json.loads(_ip("-json", "-4", "route", "show", "dev", HOST_LINK) or "[]")
    there = {route["dst"] for route in routes}
    in_node = namespaces.run(["ip", "-json", "-4", "route", "show"])
    has_default = any(route["dst"] == "default" for route in json.loads(in_node or "[]"))
    return has_default and {str(PODS), SERVICES} <= there


def _ip(*arguments: str, may_fail: bool = False) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0 and not may_fail:
        raise ClusterError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout if done.returncode == 0 else ""
