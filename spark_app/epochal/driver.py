"""The driver process: ``python -m epochal.driver CONFIG.json`` runs one generation of one job.

The file is a :class:`epochal.protocol.control.DriverConfig`. Exit codes are in the same module.
"""

import functools
import importlib
import importlib.util
import logging
import os
import re
import signal
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import cast

import msgspec
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import epochal
from epochal.api.pipeline import Pipeline
from epochal.control.jars import PACKAGES
from epochal.control.last_words import how_the_jvm_ended, write_cause
from epochal.protocol.control import (
    EXIT_FAILED,
    EXIT_MISCONFIGURED,
    EXIT_STOPPED,
    FEATURES,
    GRACE_VARIABLE,
    IN_PLACE_VARIABLE,
    POD_ADDRESS_VARIABLE,
    SECRETS_VARIABLE,
    SERVER_TOKEN_FILE,
    TOKEN_VARIABLE,
    DriverConfig,
    PipelineConfig,
)
from epochal.runtime.checkpoint.checkpointer import POOL
from epochal.runtime.dataflow.arrow_batches import LIMIT, OFF
from epochal.runtime.dataflow.graph import Graph
from epochal.runtime.errors import PipelineError, UserCodeError, summarize_error, undescribed
from epochal.runtime.http.control_server import ControlServer
from epochal.runtime.http.server_tls import server_context
from epochal.runtime.in_place import DriverEngines
from epochal.runtime.spark.beside import find_modules_in
from epochal.runtime.spark.executors import out_of_memory
from epochal.runtime.spark.jvm import JAVA_BRIDGE, jvm_exit_code, log_errors_only
from epochal.runtime.users_code import users_line
from epochal.runtime.warm_up import warm_up

logger = logging.getLogger(__name__)

SPARK_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    # A job waits for its executors when it needs them (runtime/spark/executors.py): until then there is other work.
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.sql.session.timeZone": "UTC",
    # Plans of micro-batches are all alike: there is nothing to learn while one runs, and runs keep their partitioning.
    "spark.sql.adaptive.enabled": "false",
    # It moves a semi-join with a table below the union of the table's runs: each run would hash the batch's keys anew,
    # and Spark holds all these until the batch is done.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushDownLeftSemiAntiJoin",
    # State that is in files is where it was written: a task waits for the executor that has it. Others must not wait
    # for a host just because it has more of what they fetch.
    "spark.locality.wait": "60s",
    "spark.shuffle.reduceLocality.enabled": "false",
    # Each execution is described for pages that nobody looks at: in short.
    "spark.sql.ui.explainMode": "simple",
    # With a stage's number in it the same code is another class: compiled again by Spark, and cold for the JVM.
    "spark.sql.codegen.useIdInClassName": "false",
    # Groups that fit into the first, faster one of two hash maps: by default 2 to the power of 16.
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "18",
    # A file is cut into equal pieces. By default each file counts for 4 MB more than it has, and of two tasks that read
    # one of 12 MB the first gets two thirds.
    "spark.sql.files.openCostInBytes": "65536",
    # The size of what was gathered is computed again for each row, which takes as long as gathering it: only of jobs
    # whose rows may be large (runtime/dataflow/arrow_batches.py).
    LIMIT: OFF,
    # Rows that go to Python together: with the default of 10,000 each of them costs a tenth more.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    # The default file manager forks a process for each file's permissions: 100 ms of every micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Old entries of the progress log are of no use to us: positions are taken from the newest.
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.cleaner.periodicGC.interval": "5min",
    # Spark remembers what its web pages would show, also where there are none.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
}

JVM = (
    # Batches and checkpoints ask for throughput. G1's barriers cost windows over large batches a sixth of it.
    "-XX:+UseParallelGC",
    # Most of what Spark does on a driver is called some thousand times an hour: compiling that by the slower compiler
    # takes more than it brings, and is done beside the batches. What runs for each row is called a million times.
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=5000",
    "-XX:Tier4CompileThreshold=40000",
    "-XX:Tier4BackEdgeThreshold=40000",
)
"""Options of driver and executors."""

NOISY = ("org.apache.spark.rdd",)
"""Loggers of Spark that warn with every batch: of each RDD that is kept without its lineage, as we ask for."""

PARTITIONS = "spark.sql.shuffle.partitions"

LAST_REPORT_WAIT = 5.0

ENDING_TAKES = 5.0
"""Seconds of the grace period that are left to end in, without a last checkpoint."""


def main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger(JAVA_BRIDGE.__name__).setLevel(logging.WARNING)
    if len(arguments) != 1:
        print("usage: python -m epochal.driver CONFIG.json", file=sys.stderr)
        return EXIT_MISCONFIGURED
    try:
        config = read_config(Path(arguments[0]))
    except (OSError, msgspec.DecodeError) as error:
        print(f"{arguments[0]} cannot be used: {error}", file=sys.stderr)
        return EXIT_MISCONFIGURED
    if unknown := sorted(set(config.needs) - FEATURES):
        print(
            f"this image has Epochal {epochal.__version__}, which cannot do what the job needs ({', '.join(unknown)}): "
            "use an image of the operator's release",
            file=sys.stderr,
        )
        return EXIT_MISCONFIGURED
    try:
        token, tls = _control_secrets()
    except (OSError, ValueError) as error:
        print(f"the driver's control server cannot start: {error}", file=sys.stderr)
        return EXIT_MISCONFIGURED
    # Python workers must be this interpreter: Spark would look for one named python3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    driver = DriverEngines(config)
    _end_by_signals(driver)
    server = ControlServer(
        driver, host=config.host, port=config.port, token=token, tls=tls, registry=driver.engine.metrics.registry
    )
    server.start()
    _announce(config, server.address)
    said: list[str] = []
    worker = threading.Thread(target=lambda: said.append(_run(driver, config)), name="engine", daemon=True)
    worker.start()
    # The main thread stays free for signals.
    while worker.is_alive():
        worker.join(timeout=0.2)
    engine = driver.engine  # the last one
    code = EXIT_FAILED if engine.exit_code is None else engine.exit_code
    if code == EXIT_STOPPED:
        # The controller wants to read how the last checkpoint went.
        engine.last_report_read.wait(timeout=LAST_REPORT_WAIT)
    server.stop()
    # The last line of a log is what people (and the controller) look at first.
    last = "; ".join(
        filter(None, (how_the_jvm_ended(jvm_exit_code()) or engine.status().message.split("\n")[0], *said))
    )
    write_cause(last)
    logger.log(logging.INFO if code == EXIT_STOPPED else logging.ERROR, "%s", last)
    return code


def read_config(path: Path) -> DriverConfig:
    config = msgspec.json.decode(path.read_bytes(), type=DriverConfig)
    return msgspec.structs.replace(config, in_place=config.in_place or bool(os.environ.get(IN_PLACE_VARIABLE)))


def _control_secrets() -> tuple[str, ssl.SSLContext | None]:
    """The control server's token and certificate. Java and Python workers, which run the job's code, do not inherit the
    variables."""
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if directory := os.environ.pop(SECRETS_VARIABLE, ""):
        return Path(directory, SERVER_TOKEN_FILE).read_text(), server_context(Path(directory))
    if not token:
        raise ValueError(f"{TOKEN_VARIABLE} is not set: it needs a token")
    return token, None


def _end_by_signals(driver: DriverEngines) -> None:
    """A pod that is evicted gets SIGTERM: there is time for a last checkpoint. Elsewhere, or asked a second time, the
    driver ends at once."""
    grace = float(os.environ.get(GRACE_VARIABLE) or 0)
    stay = max(grace / 2, grace - ENDING_TAKES)

    def on_signal(number: int, _: object) -> None:
        message = f"ended by {signal.Signals(number).name}"
        # Not here: this may have interrupted what holds a lock that is needed for it.
        drain = number == signal.SIGTERM and stay > 0
        target = (lambda: driver.drain(message, stay)) if drain else (lambda: driver.stop(message))
        threading.Thread(target=target, name="ending", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def _run(driver: DriverEngines, config: DriverConfig) -> str:
    """Until the last engine ends; what is to be said about that beside the engine's own message."""
    said: list[str] = []
    spark: SparkSession | None = None
    try:
        spark = spark_session(config)
        warming = warm_up(spark)
        driver.run(spark, functools.partial(_described, spark, config), warming)
    except Exception as error:
        driver.engine.fail(error)
    finally:
        if spark is not None:
            _hush(spark, said)
    return said[0] if said else ""


def _described(spark: SparkSession, config: DriverConfig) -> Graph:
    pipeline = Pipeline(spark, config.storage, config.pipeline.parameters)
    describe(pipeline, config.pipeline)
    return pipeline.graph


def _hush(spark: SparkSession, said: list[str]) -> None:
    """Let Spark log no more: the log's last line is to be ours. Waits at most 2 s for it."""

    def hush() -> None:
        # A JVM that is gone says nothing more.
        with suppress(Exception):
            spark.sparkContext.setLogLevel("OFF")
            said.append(out_of_memory(spark))

    thread = threading.Thread(target=hush, name="hush", daemon=True)
    thread.start()
    thread.join(timeout=2.0)


def spark_session(config: DriverConfig) -> SparkSession:
    builder = SparkSession.builder.appName(f"{config.namespace}-{config.job}")
    for key, value in (SPARK_DEFAULTS | jvm_options() | _own_address() | config.spark_conf).items():
        builder = builder.config(key, value)
    if "spark.master" not in config.spark_conf and "SPARK_MASTER" not in os.environ:
        builder = builder.master("local[*]")
    spark = builder.getOrCreate()
    if PARTITIONS not in config.spark_conf:
        spark.conf.set(PARTITIONS, str(max(2, _cores(spark))))
    spark.sparkContext.setLogLevel("WARN")
    log_errors_only(*NOISY)
    logger.info("Spark %s is up, checkpoints use pool %s", spark.version, POOL)
    return spark


def local_session(conf: dict[str, str]) -> SparkSession:
    """A small Spark to describe a pipeline with: it runs nothing."""
    builder = SparkSession.builder.appName("epochal-explain")
    for key, value in (SPARK_DEFAULTS | conf | {"spark.master": "local[1]"}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _cores(spark: SparkSession) -> int:
    """Of all executors, also of those that have not come up yet."""
    conf = spark.sparkContext.getConf()
    executors = conf.get("spark.executor.instances")
    if executors is None:
        return spark.sparkContext.defaultParallelism
    return int(executors) * int(conf.get("spark.executor.cores", "1") or 1)


def jvm_options() -> dict[str, str]:
    """None where the environment chooses a garbage collector: a JVM that is told of two does not start."""
    if any("GC" in os.environ.get(variable, "") for variable in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS")):
        return {}
    return {f"spark.{where}.extraJavaOptions": " ".join(JVM) for where in ("driver", "executor")}


def _own_address() -> dict[str, str]:
    """In a pod: executors are told this address, and cannot find the pod by its name."""
    address = os.environ.get(POD_ADDRESS_VARIABLE)
    return {"spark.driver.host": address, "spark.driver.bindAddress": address} if address else {}


def describe(pipeline: Pipeline, config: PipelineConfig) -> None:
    """Let the user's function or text describe the pipeline; what goes wrong there is told with the line in their
    file."""
    function = load_function(config) if (text := sql_text(config)) is None else _sql_function(config, text)
    try:
        function(pipeline)
    except (PipelineError, UserCodeError):
        raise
    except Exception as error:
        if missing := _NO_SOURCE.search(str(error)):
            raise PipelineError(
                f"Spark does not know the source {missing[1]!r}: its package must be in sparkConf, such as "
                f"spark.jars.packages: {PACKAGES.get(missing[1].lower(), 'group:artifact:version')} "
                "(docs/connectors.md)"
            ) from error
        where = users_line(error)
        message = f"the pipeline function failed with {type(error).__name__}: {summarize_error(error)}"
        raise undescribed(f"{message} ({where.filename}:{where.lineno})", error) from error


_NO_SOURCE = re.compile(r"Failed to find (?:the )?data source: (\w+)")


def sql_text(config: PipelineConfig) -> str | None:
    """The text of a pipeline that is SQL; None of one that is Python."""
    if config.sql is not None:
        return config.sql
    if config.file is None or not config.file.endswith(".sql"):
        return None
    try:
        return Path(config.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{config.file} cannot be read: {error}") from error


def _sql_function(config: PipelineConfig, text: str) -> Callable[[Pipeline], None]:
    from epochal.sql.build import build_sql

    # Functions of the text are in Python files beside it.
    beside = str(Path(config.file).resolve().parent) if config.file else str(Path.cwd())
    if beside not in sys.path:
        sys.path.insert(0, beside)
    return lambda pipeline: build_sql(pipeline, text)


def load_function(config: PipelineConfig) -> Callable[[Pipeline], None]:
    """The user's function, from an importable module or a file."""
    where, _, given = (config.module or "").partition(":")
    name = given or config.function
    try:
        if config.file is not None:
            where = config.file
            module = _from_file(Path(config.file))
        elif config.module is not None:
            module = importlib.import_module(where)
        else:
            raise PipelineError("the job names no pipeline: give a module or a file")
    except PipelineError:
        raise
    except Exception as error:
        message = f"{where} cannot be imported: {type(error).__name__}: {error}"
        raise undescribed(message, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise PipelineError(f"{where} has no function {name!r}")
    return cast(Callable[[Pipeline], None], function)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PipelineError(f"there is no Python file {path}")
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # Executors may not have the file: its functions are sent to them whole.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    find_modules_in(path.resolve().parent)
    spec.loader.exec_module(module)
    return module


def _announce(config: DriverConfig, address: str) -> None:
    logger.info("Control server listens on %s", address)
    if config.ready_file is not None:
        path = Path(config.ready_file)
        partial = path.with_suffix(".partial")
        partial.write_text(address)
        partial.rename(path)


if __name__ == "__main__":
    # Spark's Java process and Python's callback threads do not end by themselves once something went wrong.
    sys.stdout.flush()
    os._exit(main(sys.argv[1:]))
