"""Between driver and executors: Spark's own network classes, with the settings that a job's driver gets."""

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from epochal.protocol.epochs import Generation
from epochal_operator.kubernetes.manifests.spark_conf import spark_conf
from tests.operator.test_resources import SPEC

APP = "revenue"


class Peers:
    """A server with these settings, and clients that know its secret."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._network = jvm.org.apache.spark.network
        self._secrets = self._network.sasl.ShuffleSecretManager()
        self._secrets.registerApp(APP, "known to both")
        settings = jvm.java.util.HashMap()
        for key, value in spark_conf(SPEC, Generation(1)).items():
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
