"""The driver's side of TLS on the control channel: its certificate, and the handshake."""

import socket
import ssl
from pathlib import Path

from epochal.protocol.control import CERTIFICATE_FILE, PRIVATE_KEY_FILE

HANDSHAKE = b"\x16"
"""What a connection begins with that wants TLS. No method of HTTP does."""


def server_context(directory: Path) -> ssl.SSLContext:
    """With the certificate that the operator has made for this generation."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Both ends are ours.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Each request has a connection of its own, minutes apart: nobody resumes one.
    context.num_tickets = 0
    context.load_cert_chain(directory / CERTIFICATE_FILE, directory / PRIVATE_KEY_FILE)
    return context


def secured(connection: socket.socket, context: ssl.SSLContext, seconds: float) -> socket.socket:
    """The connection with TLS if its client wants that, else as it is. To be closed by the caller. The handshake as a
    whole may take so many ``seconds``, also if it comes byte by byte."""
    connection.settimeout(seconds)
    if connection.recv(1, socket.MSG_PEEK) != HANDSHAKE:
        return connection
    shaking = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
    try:
        shaking.do_handshake()
    except BaseException:
        shaking.close()
        raise
    return shaking
