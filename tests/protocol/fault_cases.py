"""Errors as libraries and servers raise them, for each line of the table of faults; and the page that is written from
the table:

    python -m tests.protocol.fault_cases --write
"""

import http.client
import json
import ssl
import sys
import urllib.error
from collections.abc import Mapping
from email.message import Message
from pathlib import Path

import deltalake.exceptions
import obstore.exceptions
import psycopg
import psycopg.errors
import pyiceberg.exceptions as iceberg
import sqlalchemy.exc
from confluent_kafka import KafkaError, KafkaException
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkTypeError, StreamingQueryException

from epochal.connectors.commit_ledger import SinkFencedError
from epochal.connectors.http.sink import HttpRefusedError
from epochal.protocol import errors
from epochal.protocol.faults import TABLE, UNKNOWN, Area, Fault
from epochal.runtime.errors import (
    NOT_HERE,
    DamagedStateError,
    FencedError,
    OperatorError,
    OutsideError,
    PipelineError,
    UnavailableError,
    UserCodeError,
)
from epochal.runtime.users_code import users_code
from epochal_operator.api import ApiError, ConflictError, GoneError, NotFoundError

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def sqlstate(code: str) -> psycopg.Error:
    return psycopg.errors.lookup(code)("said by the server")


def kafka(code: int, *, retriable: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, retriable=retriable))


def java(name: str, text: str = "") -> Exception:
    """As Spark passes on what Java has thrown."""
    return StreamingQueryException(f"An error occurred while calling o1.x.\n: {name}: {text}\n\tat a.b.C.d(C.java:1)")


def in_worker(raised: str) -> Exception:
    return OperatorError(
        "parsed",
        StreamingQueryException(
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            f'  File "/job/pipeline.py", line 7, in parse\n    value["x"]\n{raised}\n'
        ),
    )


def describing(error: BaseException) -> BaseException:
    return caused(UserCodeError("the pipeline function failed"), error)


def committing(error: Exception) -> BaseException:
    """As a function of the user's raises it for an epoch's rows."""
    try:
        with users_code():
            raise error
    except UserCodeError as told:
        return OperatorError("out", told)


def answered(status: int) -> BaseException:
    return urllib.error.HTTPError("http://registry:8081/subjects", status, "said", Message(), None)


class AnswerError(Exception):
    """As ``requests`` and clients that are built on it raise it."""

    def __init__(self, status: int) -> None:
        self.response = type("Response", (), {"status_code": status})()


_K = KafkaError
_S3 = "Generic S3 error: Error performing PUT http://s3:9000/b/x in 1.2ms - Server returned non-2xx status code: "

CASES: Mapping[str, tuple[BaseException, ...]] = {
    "postgres-login": (
        sqlstate("28P01"),
        sqlstate("28000"),
        psycopg.OperationalError('FATAL:  password authentication failed for user "u"'),
        psycopg.OperationalError('FATAL:  no pg_hba.conf entry for host "10.0.0.1"'),
        psycopg.OperationalError("SSL error: certificate verify failed"),
    ),
    "postgres-not-allowed": (sqlstate("42501"),),
    "postgres-table": (sqlstate("42P01"), sqlstate("42703"), sqlstate("42P10"), sqlstate("42804")),
    "postgres-no-database": (
        sqlstate("3D000"),
        sqlstate("3F000"),
        psycopg.OperationalError('FATAL:  database "shop" does not exist'),
    ),
    "postgres-disk-full": (sqlstate("53100"),),
    "postgres-constraint": (sqlstate("23505"), sqlstate("23502"), sqlstate("23514")),
    "postgres-value": (
        sqlstate("22003"),
        sqlstate("22P02"),
        sqlstate("22001"),
        psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"),
    ),
    "postgres-busy": (*map(sqlstate, ("53200", "53300", "55P03", "40001", "40P01", "57014")),),
    "postgres-away": (*map(sqlstate, ("08006", "57P01", "57P02", "57P03", "25006", "58030", "XX000")),),
    "postgres-client": (psycopg.ProgrammingError("invalid dsn"), psycopg.NotSupportedError("no")),
    "postgres-no-answer": (
        psycopg.OperationalError("connection failed: Connection refused"),
        psycopg.OperationalError("[Errno -2] Name or service not known"),
        psycopg.OperationalError("the connection is lost"),
        OperatorError("out", caused(PipelineError("wrapped by mistake"), psycopg.OperationalError("timeout expired"))),
    ),
    "kafka-login": (
        kafka(_K._AUTHENTICATION),
        kafka(_K._SSL),
        kafka(_K.SASL_AUTHENTICATION_FAILED),
        java("org.apache.kafka.common.errors.SaslAuthenticationException"),
    ),
    "kafka-not-allowed": (
        kafka(_K.TOPIC_AUTHORIZATION_FAILED),
        kafka(_K.GROUP_AUTHORIZATION_FAILED),
        kafka(_K.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        kafka(_K.CLUSTER_AUTHORIZATION_FAILED),
        java("org.apache.kafka.common.errors.TopicAuthorizationException"),
    ),
    "kafka-no-topic": (
        kafka(_K.UNKNOWN_TOPIC_OR_PART),
        kafka(_K._UNKNOWN_TOPIC),
        java("org.apache.kafka.common.errors.UnknownTopicOrPartitionException"),
    ),
    "kafka-data-gone": (
        StreamingQueryException("[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may be lost"),
        java("org.apache.kafka.clients.consumer.OffsetOutOfRangeException"),
    ),
    "kafka-limit": (kafka(_K.MSG_SIZE_TOO_LARGE), java("org.apache.kafka.common.errors.RecordTooLargeException")),
    "kafka-fenced": (kafka(_K._FENCED), kafka(_K.PRODUCER_FENCED), kafka(_K.INVALID_PRODUCER_EPOCH)),
    "kafka-broken": (kafka(_K._STATE), kafka(_K._FATAL)),
    "kafka-away": (
        kafka(_K._TRANSPORT),
        kafka(_K._ALL_BROKERS_DOWN),
        kafka(_K._TIMED_OUT),
        kafka(_K._RESOLVE),
        kafka(_K.COORDINATOR_LOAD_IN_PROGRESS),
        kafka(_K.LEADER_NOT_AVAILABLE),
        kafka(_K.NOT_ENOUGH_REPLICAS),
        kafka(_K.UNKNOWN, retriable=True),
        java("org.apache.kafka.common.errors.TimeoutException", "Timed out waiting for a node assignment"),
    ),
    "kafka-option": (
        kafka(_K._INVALID_ARG),
        java("org.apache.kafka.common.config.ConfigException", "No resolvable bootstrap urls"),
    ),
    "kubernetes-quota": (ApiError('pods "x" is forbidden: exceeded quota: pods', 403),),
    "kubernetes-not-allowed": (ApiError("Unauthorized", 401), ApiError('violates PodSecurity "restricted"', 403)),
    "kubernetes-missing": (NotFoundError("no such namespace", 404),),
    "kubernetes-changed": (ConflictError("changed", 409), GoneError("too old", 410)),
    "kubernetes-busy": (ApiError("slow down", 429), ApiError("etcdserver", 500), ApiError("", 503), ApiError("", 504)),
    "kubernetes-invalid": (ApiError("spec.containers[0].image: Required value", 422), ApiError("bad", 400)),
    "kubernetes-away": (ApiError("the API server does not answer: timed out"),),
    "http-not-allowed": (HttpRefusedError("no", 401), answered(403), AnswerError(407)),
    "http-missing": (HttpRefusedError("nothing here", 404), answered(410), HttpRefusedError("moved", 302)),
    "http-busy": (answered(503), AnswerError(429), answered(500), HttpRefusedError("conflict", 409), answered(408)),
    "http-refused": (HttpRefusedError("bad rows", 400), HttpRefusedError("", 413), HttpRefusedError("", 422)),
    "http-no-answer": (
        http.client.RemoteDisconnected("closed"),
        http.client.IncompleteRead(b""),
        urllib.error.URLError("no route"),
        describing(json.JSONDecodeError("a proxy's page", "<html>", 0)),
        in_worker("requests.exceptions.ConnectionError: HTTPConnectionPool(host='x', port=80): Max retries exceeded"),
    ),
    "table-conflict": (
        deltalake.exceptions.CommitFailedError("version 3 is there"),
        iceberg.CommitFailedException("changed"),
        iceberg.CommitStateUnknownException("502"),
    ),
    "catalog-not-allowed": (iceberg.UnauthorizedError(), iceberg.ForbiddenError(), iceberg.OAuthError()),
    "table-missing": (
        iceberg.NoSuchTableError("x"),
        iceberg.NoSuchNamespaceError("x"),
        deltalake.exceptions.TableNotFoundError("no table"),
    ),
    "catalog-away": (
        iceberg.ServiceUnavailableError(),
        iceberg.ServerError(),
        sqlalchemy.exc.OperationalError("SELECT 1", {}, Exception("unable to open database file")),
    ),
    "table-changed": (
        deltalake.exceptions.SchemaMismatchError("no column x"),
        iceberg.ValidationError("x"),
        iceberg.BadRequestError(),
    ),
    "catalog-option": (iceberg.NotInstalledError("pyarrow"),),
    "store-no-bucket": (
        errors.MissingBucketError("s3://b", "none"),
        obstore.exceptions.NotFoundError("<Code>NoSuchBucket</Code>"),
        java("org.apache.hadoop.fs.s3a.UnknownStoreException", "`s3a://b/': Bucket does not exist"),
    ),
    "store-credentials": (
        errors.BadCredentialsError("s3://b", "no"),
        obstore.exceptions.UnauthenticatedError("no"),
        obstore.exceptions.GenericError(f"{_S3}400 Bad Request: <Code>ExpiredToken</Code>"),
        deltalake.exceptions.DeltaError(f"{_S3}403 Forbidden: <Code>InvalidAccessKeyId</Code>"),
        java("org.apache.hadoop.fs.s3a.auth.NoAwsCredentialsException"),
    ),
    "store-not-allowed": (
        errors.AccessDeniedError("s3://b", "no"),
        obstore.exceptions.PermissionDeniedError("no"),
        deltalake.exceptions.DeltaError(f"{_S3}403 Forbidden: <Code>AccessDenied</Code>"),
        java("java.nio.file.AccessDeniedException", "s3a://b/x: getFileStatus"),
    ),
    "store-full": (
        errors.StoreFullError("file:///x", "full"),
        obstore.exceptions.GenericError("Unable to write: No space left on device (os error 28)"),
    ),
    "store-unsafe": (errors.UnsafeStoreError("s3://b", "overwrites"),),
    "store-away": (
        errors.StoreUnreachableError("s3://b", "no answer"),
        errors.StoreUnavailableError("s3://b", "503"),
        obstore.exceptions.GenericError("HTTP error: error sending request, kind: Connect: dns error"),
        obstore.exceptions.GenericError(f"{_S3}503 Service Unavailable: <Code>SlowDown</Code>"),
        deltalake.exceptions.DeltaError(f"{_S3}429 Too Many Requests"),
        in_worker("epochal.protocol.errors.StoreUnavailableError: s3://b: failed to create x"),
        java("org.apache.hadoop.fs.s3a.AWSServiceThrottledException", "Status Code: 503"),
    ),
    "store-refused": (
        errors.StoreRefusedError("s3://b", "wrong region"),
        obstore.exceptions.GenericError(f"{_S3}400 Bad Request: <Code>AuthorizationHeaderMalformed</Code>"),
    ),
    "store-config": (errors.StoreConfigError("ftp://x", "is no store"),),
    "disk-full": (
        OSError(28, "No space left on device"),
        OSError(122, "Disk quota exceeded"),
        java("java.io.IOException", "No space left on device"),
    ),
    "certificate": (
        ssl.SSLCertVerificationError("self-signed certificate"),
        java("javax.net.ssl.SSLHandshakeException"),
        in_worker("ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"),
    ),
    "file": (
        describing(FileNotFoundError(2, "No such file or directory", "/etc/schema.avsc")),
        PermissionError(13, "Permission denied"),
        AnalysisException("[PATH_NOT_FOUND] Path does not exist: s3a://b/in. SQLSTATE: 42K03"),
    ),
    "memory": (
        MemoryError(),
        java("java.lang.OutOfMemoryError", "Java heap space"),
        in_worker("MemoryError"),
        in_worker("ImportError: libgfortran.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
    ),
    "network": (
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError("timed out"),
        describing(ConnectionResetError(104, "Connection reset by peer")),
        in_worker("ConnectionRefusedError: [Errno 111] Connection refused"),
        java("java.net.UnknownHostException", "kafka"),
        java("java.net.ConnectException", "Connection refused"),
    ),
    "spark-encryption-limit": (
        java("org.apache.spark.shuffle.FetchFailedException", "newLimit < 0: (-1073741856 < 0)"),
    ),
    "executor-lost": (
        StreamingQueryException("[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_7_0 not found!"),
        in_worker(f"RuntimeError: {NOT_HERE} 3"),
        StreamingQueryException("Job aborted: ExecutorLostFailure (executor 1 exited unrelated to the running tasks)"),
    ),
    "jvm-gone": (
        Py4JNetworkError("Answer from Java side is empty"),
        StreamingQueryException("Job 7 cancelled because SparkContext was shut down"),
        RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."),
    ),
    "jar-missing": (
        describing(AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka. SQLSTATE: 42K02")),
        java("java.lang.ClassNotFoundException", "io.delta.sql.DeltaSparkSessionExtension"),
        describing(TypeError("'JavaPackage' object is not callable")),
    ),
    "spark-table-missing": (
        AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] The table or view `orders` cannot be found. SQLSTATE: 42P01"),
    ),
    "row": (
        StreamingQueryException(
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/0001.json.\n"
            "\tat com.fasterxml.jackson.core.json.ReaderBasedJsonParser._reportInvalidToken(Unknown Source)"
        ),
        StreamingQueryException("[CAST_INVALID_INPUT] The value 'x1' of the type STRING cannot be cast to BIGINT"),
        StreamingQueryException("[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading"),
    ),
    "spark-plan": (
        describing(
            AnalysisException("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nme` cannot be resolved")
        ),
        ParseException("[PARSE_SYNTAX_ERROR] Syntax error at or near 'FRM'. SQLSTATE: 42601"),
    ),
    "import": (
        ModuleNotFoundError("No module named 'shop'"),
        in_worker("ModuleNotFoundError: No module named 'shop'"),
    ),
    "programming-error": (
        *map(describing, (TypeError("x"), KeyError("x"), ValueError("x"), NameError("x"), ZeroDivisionError("x"))),
        describing(PySparkTypeError("[NOT_COLUMN_OR_STR] Argument `col` should be a Column")),
        in_worker("TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'"),
        in_worker("KeyError: 'user'"),
        *map(committing, (TypeError("x"), KeyError("x"), NameError("x"))),
    ),
    "damaged-state": (DamagedStateError("state/x", "is missing"),),
    "fenced": (
        SinkFencedError("generation 3 has taken over"),
        FencedError("generation 3 has taken over from generation 2"),
    ),
    "newer-release": (errors.NewerDocumentError("m", "written by 9.0", kind="Manifest"),),
    "unavailable": (
        UnavailableError("the service is being updated"),
        in_worker("epochal.runtime.errors.UnavailableError: no answer within 10 s, 3 times"),
    ),
    "outside": (
        OperatorError("out", caused(PipelineError("operator 'out'"), OutsideError("there is no topic x"))),
        OperatorError("out", OutsideError("s3://b/out: has a epoch-0000000007-00000.parquet with other content")),
    ),
    "pipeline": (PipelineError("two operators have one name"), errors.InvalidNameError("A is no name")),
    "unknown": (
        RuntimeError("what nobody has thought of"),
        describing(RuntimeError("the registry is in maintenance")),
        OperatorError("out", ValueError("of a library, while running")),
        OSError("no number"),
    ),
}
"""By line: examples. Those of a server that is at hand are in the tests of the sinks as well."""


# --- the page ---------------------------------------------------------------------------------------------------------

_HEAD = """# Errors, and who fixes them

One table decides how Epochal handles an error: `spark_app/epochal/protocol/faults.py`. Drivers, sinks, the store, the
operator and the command line all use it.

| fixed by | what Epochal does |
|---|---|
| time | It retries: the same call where the table says *waits*, otherwise with a new driver. |
| a person | It keeps starting new drivers, with pauses of up to 5 minutes. Condition `Stalled` has reason `Refused` \
and says what to do. The job recovers by itself once that is done. |
| an edit of the job | The same, with reason `Misconfigured`, if this revision of the job has run before. A revision \
that has never run is `Failed` at once. |

A sink that commits an epoch **waits** up to 10 minutes for its target before the driver ends, and up to 5 minutes
while the driver starts. Meanwhile the driver's status, its log and the epoch's report say what it waits for. A driver
that is asked to stop does not wait.
See [restarts](operator.md#restarts) for the pauses and [decision 26](decisions/0026-retry-is-the-default.md) for the
reasons.

The first line that matches an error counts. A line matches if one of its signs matches the error or one of its causes.

This page is written by `python -m tests.protocol.fault_cases --write` and checked by `tests/protocol/test_faults.py`.
"""


def page() -> str:
    parts = [_HEAD]
    for area in Area:
        parts.append(f"\n## {area}\n\n| error | fixed by | what to do | recognized by |\n|---|---|---|---|\n")
        parts += [_row(line) for line in (*TABLE, UNKNOWN) if line.area is area]
    return "".join(parts)


def _row(line: Fault) -> str:
    who = f"{line.fixed_by}; waits" if line.in_place else str(line.fixed_by)
    return f"| {line.what} | {who} | {line.todo} | {', '.join(map(_sign, line.signs)) or 'no other line matches'} |\n"


def _sign(sign: str) -> str:
    _, says, text = sign.partition(" says ")
    if says:
        return f"`…{text}…`"
    kind, _, value = sign.partition(":")
    told: dict[str, str] = {
        "sqlstate": "SQLSTATE `{}`",
        "kafka": "`{}`",
        "http": "answer `{}`",
        "kubernetes": "answer `{}`",
        "errno": "errno `{}`",
        "user": "`{}` in your code",
        "spark": "`[{}]`",
    }
    name = value.removeprefix("builtins.").removeprefix("_internal.").removeprefix("epochal.")
    return told.get(kind, "`{}`").format(name)


def main(arguments: list[str]) -> None:
    if arguments == ["--write"]:
        PAGE.write_text(page())
    else:
        print(page(), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
