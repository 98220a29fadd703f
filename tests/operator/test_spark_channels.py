"""Between driver and executors: Spark's own network classes, with the settings that a job's driver gets."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from epochal.protocol.epochs import Generation
from epochal.protocol.faults import fault_of
from epochal_operator.kubernetes.manifests.spark_conf import spark_conf
from tests.operator.test_resources import SPEC

APP = "revenue"


HEADER, SEGMENT = 24, 32 * 1024
"""Bytes of Spark's AES-GCM: what comes before the first segment, and the longest segment."""


class Peers:
    """A server with these settings, and clients that know its secret."""

    def __init__(self, spark: SparkSession, given: Mapping[str, str] | None = None) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._network = jvm.org.apache.spark.network
        self._secrets = self._network.sasl.ShuffleSecretManager()
        self._secrets.registerApp(APP, "known to both")
        settings = jvm.java.util.HashMap()
        for key, value in spark_conf(replace(SPEC, spark_conf=given or {}), Generation(1)).items():
            if key.startswith(("spark.authenticate", "spark.network")):
                settings.put(key, value)
        self._conf = self._network.util.TransportConf("rpc", self._network.util.MapConfigProvider(settings))
        self._context = self._network.TransportContext(self._conf, self._network.server.NoOpRpcHandler())
        bootstrap = self._network.crypto.AuthServerBootstrap(self._conf, self._secrets)
        self._server = self._context.createServer("127.0.0.1", 0, [bootstrap])

    def connect(self, *, sasl: bool) -> None:
        """Over the handshake before encryption, or over the one that encrypts."""
        kind = self._network.sasl.SaslClientBootstrap if sasl else self._network.crypto.AuthClientBootstrap
        clients = self._context.createClientFactory([kind(self._conf, APP, self._secrets)])
        try:
            assert clients.createClient("127.0.0.1", self._server.getPort()).isActive()
        finally:
            clients.close()

    def close(self) -> None:
        self._server.close()
        self._context.close()


@pytest.mark.spark
def test_nobody_can_talk_a_driver_out_of_encryption(spark: SparkSession) -> None:
    """Whoever can change packages on the way would else have both sides fall back on what encrypts nothing."""
    peers = Peers(spark)
    try:
        peers.connect(sasl=False)
        with pytest.raises(Py4JJavaError, match="Unknown challenge message"):
            peers.connect(sasl=True)
    finally:
        peers.close()


@pytest.mark.spark
@pytest.mark.parametrize(
    "given",
    [{"spark.network.crypto.cipher": "AES/CTR/NoPadding"}, {"spark.network.crypto.enabled": "false"}],
    ids=["another cipher", "no encryption"],
)
def test_what_the_documentation_names_instead_works(spark: SparkSession, given: dict[str, str]) -> None:
    peers = Peers(spark, given)
    try:
        peers.connect(sasl=False)
    finally:
        peers.close()


def decrypt(spark: SparkSession, length: int) -> None:
    """The beginning of a message of this length. None of it was encrypted with the key."""
    jvm: Any = spark.sparkContext._jvm
    gateway: Any = spark.sparkContext._gateway
    channel = jvm.io.netty.channel.embedded.EmbeddedChannel()
    key = jvm.javax.crypto.spec.SecretKeySpec(bytes(16), "AES")
    jvm.org.apache.spark.network.crypto.GcmTransportCipher(key).addToChannel(channel)
    data = jvm.io.netty.buffer.Unpooled.buffer()
    data.writeLong(length)
    data.writeBytes(bytes([HEADER, *bytes(HEADER - 1 + SEGMENT)]))
    messages = gateway.new_array(jvm.java.lang.Object, 1)
    messages[0] = data
    channel.writeInbound(messages)


@pytest.mark.spark
def test_more_than_2_gb_at_once_cannot_be_decrypted_and_the_error_is_named(spark: SparkSession) -> None:
    """If this fails, Spark has mended SPARK-59636: take the limit out of the documentation and of the faults."""
    with pytest.raises(Py4JJavaError, match="AEADBadTagException"):
        decrypt(spark, 2**30)
    with pytest.raises(Exception, match="newLimit < 0") as caught:
        decrypt(spark, 3 * 2**30)
    assert fault_of(caught.value).name == "spark-encryption-limit"
