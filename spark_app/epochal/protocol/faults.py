"""Who fixes what: the one table by which drivers, sinks, store, operator and command line decide what to do about an
error. ``docs/faults.md`` is written from it.

Lines are tried from the top, so a line that is more specific stands above one that is less. All of an error counts:
class, codes and text, and those of what it was caused by. :mod:`epochal.protocol.evidence` has the words of signs.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from epochal.protocol.control import EXIT_FAILED, EXIT_MISCONFIGURED, EXIT_REFUSED
from epochal.protocol.evidence import evidence_of


class FixedBy(StrEnum):
    TIME = "time"
    """A later try works by itself."""
    PERSON = "a person"
    """Somebody has to change something outside of the job; a later try finds it changed."""
    EDIT = "an edit of the job"
    """Its code, its image or its spec is wrong."""


class Area(StrEnum):
    POSTGRES = "PostgreSQL"
    KAFKA = "Kafka"
    KUBERNETES = "Kubernetes"
    HTTP = "HTTP services"
    TABLES = "Delta and Iceberg tables"
    STORE = "Object stores"
    MACHINE = "Network, disks and memory"
    SPARK = "Spark"
    CODE = "Your code"
    EPOCHAL = "Epochal's own checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One line. ``signs``: any of them is enough. ``in_place``: the same call may work in a moment, so it is tried
    again before the driver is restarted."""

    name: str
    area: Area
    what: str
    fixed_by: FixedBy
    todo: str
    signs: tuple[str, ...]
    in_place: bool = False


EXIT_CODES = {FixedBy.TIME: EXIT_FAILED, FixedBy.PERSON: EXIT_REFUSED, FixedBy.EDIT: EXIT_MISCONFIGURED}
"""What a driver ends with."""


def fault_of(error: BaseException) -> Fault:
    """The line of the table that an error falls under; :data:`UNKNOWN` if none names it."""
    evidence = evidence_of(error)
    return next((line for line in TABLE if any(evidence.shows(sign) for sign in line.signs)), UNKNOWN)


def worth_waiting(error: BaseException) -> bool:
    """Whether the same call may work in a moment."""
    return fault_of(error).in_place


def exit_code(error: BaseException) -> int:
    return EXIT_CODES[fault_of(error).fixed_by]


# --- the table --------------------------------------------------------------------------------------------------------

_Line = partial[Fault]


def _line(fixed_by: FixedBy, name: str, what: str, todo: str, signs: str, *, in_place: bool = False) -> _Line:
    known = tuple(signs.split(", "))
    return partial(Fault, name=name, what=what, fixed_by=fixed_by, todo=todo, signs=known, in_place=in_place)


_waits = partial(_line, FixedBy.TIME, in_place=True)
_restarts = partial(_line, FixedBy.TIME)
_person = partial(_line, FixedBy.PERSON)
_edit = partial(_line, FixedBy.EDIT)


def _of(area: Area, *lines: _Line) -> tuple[Fault, ...]:
    return tuple(line(area=area) for line in lines)


_NOTHING = "Nothing. If it lasts, look at the server."

TABLE: tuple[Fault, ...] = (
    *_of(
        Area.POSTGRES,
        _person(
            "postgres-login",
            "The server does not let the user in",
            "Correct user, password, certificate or `pg_hba.conf`.",
            "sqlstate:28*, psycopg says authentication failed, psycopg says no pg_hba.conf entry, "
            "psycopg says no password supplied, psycopg says is not permitted to log in, "
            "psycopg says certificate verify failed, psycopg says root certificate file, "
            "psycopg says server does not support SSL",
        ),
        _person(
            "postgres-not-allowed",
            "The user has no right to that",
            "Grant the right that the message names.",
            "sqlstate:42501",
        ),
        _person(
            "postgres-table",
            "A table, column or index is missing or is not what the sink needs",
            "Create or alter the table; or change the pipeline.",
            "sqlstate:42*",
        ),
        _person(
            "postgres-no-database",
            "There is no such database, schema or role",
            "Create it.",
            "sqlstate:3D000, sqlstate:3F000, psycopg says does not exist",
        ),
        _person("postgres-disk-full", "The server's disk is full", "Make room.", "sqlstate:53100"),
        _person(
            "postgres-constraint",
            "Rows violate a constraint of the table",
            "Change the constraint, or keep such rows out of the sink.",
            "sqlstate:23*",
        ),
        _edit(
            "postgres-value",
            "A value does not fit its column",
            "Cast or filter it in the pipeline; or alter the column.",
            "sqlstate:22*, class:psycopg.DataError",
        ),
        _waits(
            "postgres-busy",
            "Too many connections, no memory, a lock that is held, a deadlock, or a statement that was cancelled",
            _NOTHING,
            "sqlstate:53*, sqlstate:55*, sqlstate:40*, sqlstate:57014",
        ),
        _waits(
            "postgres-away",
            "The server starts, stops, recovers, is a standby that only reads, or reports an error of its own",
            _NOTHING,
            "sqlstate:08*, sqlstate:57P*, sqlstate:25006, sqlstate:58*, sqlstate:XX*",
        ),
        _edit(
            "postgres-client",
            "The client refuses what it is given, such as a dsn that it cannot read",
            "Correct the sink's arguments.",
            "class:psycopg.ProgrammingError, class:psycopg.NotSupportedError",
        ),
        _waits(
            "postgres-no-answer",
            "Nobody answers, the name is not known, or the connection breaks",
            _NOTHING,
            "class:psycopg.OperationalError",
        ),
    ),
    *_of(
        Area.KAFKA,
        _person(
            "kafka-login",
            "The brokers do not accept the credentials or the certificate",
            "Correct user, password or certificate.",
            "kafka:_AUTHENTICATION, kafka:_SSL, kafka:SASL_AUTHENTICATION_FAILED, kafka:ILLEGAL_SASL_STATE, "
            "kafka:UNSUPPORTED_SASL_MECHANISM, kafka:DELEGATION_TOKEN_*, "
            "java:org.apache.kafka.common.errors.SaslAuthenticationException, "
            "java:org.apache.kafka.common.errors.SslAuthenticationException",
        ),
        _person(
            "kafka-not-allowed",
            "The user has no right to the topic, group, transactional id or cluster",
            "Add the ACL that the message names.",
            "kafka:*_AUTHORIZATION_FAILED, java:org.apache.kafka.common.errors.*AuthorizationException",
        ),
        _person(
            "kafka-no-topic",
            "There is no such topic or partition",
            "Create the topic.",
            "kafka:UNKNOWN_TOPIC_OR_PART, kafka:UNKNOWN_TOPIC_ID, kafka:TOPIC_EXCEPTION, "
            "kafka:_UNKNOWN_TOPIC, kafka:_UNKNOWN_PARTITION, "
            "java:org.apache.kafka.common.errors.UnknownTopicOrPartitionException, "
            "java:org.apache.kafka.common.errors.InvalidTopicException",
        ),
        _person(
            "kafka-data-gone",
            "Records were deleted before the job has read them",
            "Decide: give the source `failOnDataLoss=false`, or go back to an epoch whose records are there.",
            "spark:KAFKA_DATA_LOSS*, java:org.apache.kafka.clients.consumer.OffsetOutOfRangeException, "
            "* says some data may have been lost",
        ),
        _person(
            "kafka-limit",
            "A limit of the brokers or of the topic refuses the record or the transaction",
            "Raise the limit that the message names, or send less.",
            "kafka:MSG_SIZE_TOO_LARGE, kafka:RECORD_LIST_TOO_LARGE, kafka:INVALID_TRANSACTION_TIMEOUT, "
            "kafka:POLICY_VIOLATION, java:org.apache.kafka.common.errors.RecordTooLargeException",
        ),
        _restarts(
            "kafka-fenced",
            "Another producer has the transactional id: a newer generation, or the transaction took too long",
            "Nothing. The next driver commits what is missing.",
            "kafka:_FENCED, kafka:PRODUCER_FENCED, kafka:INVALID_PRODUCER_EPOCH",
        ),
        _restarts(
            "kafka-broken",
            "The client cannot go on with its transaction",
            "Nothing. The next driver commits what is missing.",
            "kafka:_FATAL, kafka:_STATE",
        ),
        _waits(
            "kafka-away",
            "Brokers do not answer, elect a leader, load a coordinator, or say that a retry may help",
            _NOTHING,
            "kafka:retriable, kafka:_TRANSPORT, kafka:_ALL_BROKERS_DOWN, kafka:_RESOLVE, kafka:_TIMED_OUT*, "
            "kafka:_MSG_TIMED_OUT, kafka:_WAIT_COORD, kafka:REQUEST_TIMED_OUT, kafka:NETWORK_EXCEPTION, "
            "kafka:*COORDINATOR*, kafka:*NOT_AVAILABLE, kafka:NOT_*, kafka:UNSTABLE_OFFSET_COMMIT, "
            "kafka:CONCURRENT_TRANSACTIONS, kafka:THROTTLING_QUOTA_EXCEEDED, "
            "java:org.apache.kafka.common.errors.TimeoutException, "
            "java:org.apache.kafka.common.errors.DisconnectException",
        ),
        _edit(
            "kafka-option",
            "The client does not know an option or its value",
            "Correct the sink's or the source's options.",
            "kafka:_INVALID_ARG, java:org.apache.kafka.common.config.ConfigException",
        ),
    ),
    *_of(
        Area.KUBERNETES,
        _restarts(
            "kubernetes-quota",
            "A quota of the namespace is used up",
            "Raise the quota if it lasts.",
            "epochal_operator says exceeded quota",
        ),
        _person(
            "kubernetes-not-allowed",
            "The API server, Pod Security or an admission webhook refuses it (401, 403)",
            "Grant the right, or change the policy that the message names.",
            "kubernetes:401, kubernetes:403",
        ),
        _person(
            "kubernetes-missing", "An object or its namespace does not exist (404)", "Create it.", "kubernetes:404"
        ),
        _waits(
            "kubernetes-changed",
            "The object has changed since it was read, or the view is too old (409, 410)",
            "Nothing.",
            "kubernetes:409, kubernetes:410",
        ),
        _waits(
            "kubernetes-busy",
            "The API server or a webhook is overloaded or fails (408, 429, 5xx)",
            _NOTHING,
            "kubernetes:408, kubernetes:429, kubernetes:5*",
        ),
        _edit(
            "kubernetes-invalid",
            "The API server does not accept the object, such as a pod made from `podTemplate` (400, 413, 422)",
            "Correct the field that the message names.",
            "kubernetes:400, kubernetes:413, kubernetes:422",
        ),
        _waits("kubernetes-away", "The API server does not answer", _NOTHING, "class:epochal_operator.ApiError"),
    ),
    *_of(
        Area.HTTP,
        _person(
            "http-not-allowed",
            "The server does not accept the credentials (401, 403, 407)",
            "Correct token, user or rights.",
            "http:401, http:403, http:407",
        ),
        _person(
            "http-missing",
            "There is nothing at that address (404, 410), or it has moved (3xx)",
            "Correct the address, or what serves it.",
            "http:404, http:410, http:3*",
        ),
        _waits(
            "http-busy",
            "The server is overloaded, fails or has a conflict (408, 409, 425, 429, 5xx)",
            _NOTHING,
            "http:408, http:409, http:425, http:429, http:5*",
        ),
        _edit(
            "http-refused",
            "The server does not want what it is sent (other 4xx)",
            "Change what the pipeline sends, or the server.",
            "http:4*",
        ),
        _waits(
            "http-no-answer",
            "A Python client gets no answer, or half of one",
            _NOTHING,
            "class:http.HTTPException, class:urllib.URLError, class:urllib3.HTTPError, "
            "class:requests.ConnectionError, class:requests.Timeout, class:httpx.TransportError, "
            "class:aiohttp.ClientConnectionError, user:json.JSONDecodeError, user:requests.JSONDecodeError",
        ),
    ),
    *_of(
        Area.TABLES,
        _waits(
            "table-conflict",
            "Another writer has committed first, or nobody knows whether the commit came through",
            "Nothing. The sink looks again.",
            "class:_internal.CommitFailedError, class:epochal.TakenError, "
            "class:pyiceberg.CommitFailedException, class:pyiceberg.CommitStateUnknownException, "
            "class:pyiceberg.WaitingForLockException",
        ),
        _person(
            "catalog-not-allowed",
            "The catalog does not accept the credentials, or the user has no right",
            "Correct credentials or rights.",
            "class:pyiceberg.UnauthorizedError, class:pyiceberg.ForbiddenError, class:pyiceberg.OAuthError, "
            "class:pyiceberg.AuthorizationExpiredError, class:pyiceberg.SignError",
        ),
        _person(
            "table-missing",
            "There is no such namespace or table",
            "Create it.",
            "class:pyiceberg.NoSuchTableError, class:pyiceberg.NoSuchNamespaceError, "
            "class:_internal.TableNotFoundError, spark:DELTA_TABLE_NOT_FOUND, "
            "spark:DELTA_PATH_DOES_NOT_EXIST",
        ),
        _waits(
            "catalog-away",
            "The catalog does not answer, is overloaded or fails",
            _NOTHING,
            "class:pyiceberg.ServiceUnavailableError, class:pyiceberg.ServerError, "
            "class:pyiceberg.TooManyRequestsError, class:sqlalchemy.OperationalError, "
            "class:sqlalchemy.TimeoutError",
        ),
        _person(
            "table-changed",
            "The table's schema or protocol is not what the sink can write",
            "Change the table, or the pipeline.",
            "class:_internal.SchemaMismatchError, class:_internal.DeltaProtocolError, "
            "class:pyiceberg.ValidationError, class:pyiceberg.ValidationException, "
            "class:pyiceberg.BadRequestError",
        ),
        _edit(
            "catalog-option",
            "The client lacks a part, or a property of the catalog is wrong",
            "Correct the sink's `catalog`, or install the part.",
            "class:pyiceberg.NotInstalledError, class:pyiceberg.NoSuchPropertyException",
        ),
    ),
    *_of(
        Area.STORE,
        _person(
            "store-no-bucket",
            "There is no such bucket, container or directory",
            "Create it, or correct the URI.",
            "class:epochal.MissingBucketError, * says NoSuchBucket, * says bucket does not exist, "
            "* says ContainerNotFound, java:org.apache.hadoop.fs.s3a.UnknownStoreException",
        ),
        _person(
            "store-credentials",
            "The store does not know the key, the secret does not fit, or the token has expired",
            "Renew the credentials.",
            "class:epochal.BadCredentialsError, class:obstore.UnauthenticatedError, "
            "* says InvalidAccessKeyId, * says SignatureDoesNotMatch, * says InvalidToken, "
            "* says ExpiredToken, * says XAdminUserNotFound, "
            "java:org.apache.hadoop.fs.s3a.auth.NoAwsCredentialsException",
        ),
        _person(
            "store-not-allowed",
            "The key has no right to that",
            "Grant the right.",
            "class:epochal.AccessDeniedError, class:obstore.PermissionDeniedError, * says AccessDenied, "
            "* says 403 Forbidden, * says (os error 13), * says (os error 1), * says (os error 30), "
            "java:java.nio.file.AccessDeniedException",
        ),
        _person(
            "store-full",
            "The store has no room left",
            "Make room, or let cleanup keep fewer epochs.",
            "class:epochal.StoreFullError, obstore says No space left, _internal says No space left, "
            "obstore says Disk quota exceeded, * says (os error 28), * says (os error 122)",
        ),
        _person(
            "store-unsafe",
            "The store does not support create-if-absent",
            "Use a release of the server that does, and look at gateways in between.",
            "class:epochal.UnsafeStoreError",
        ),
        _waits(
            "store-away",
            "The store does not answer, its name is not known, or it asks to slow down or fails (408, 429, 5xx)",
            _NOTHING,
            "class:epochal.StoreUnreachableError, class:epochal.StoreUnavailableError, * says kind: Connect, "
            "* says dns error, * says error trying to connect, * says SlowDown, "
            "* says error sending request, * says status code: 5, * says status code: 408, "
            "* says status code: 409, * says status code: 425, * says status code: 429, "
            "java:org.apache.hadoop.fs.s3a.AWSServiceThrottledException, "
            "java:org.apache.hadoop.fs.s3a.AWSServiceIOException, "
            "java:org.apache.hadoop.fs.s3a.AWSStatus500Exception, java:*SdkClientException",
        ),
        _person(
            "store-refused",
            "The store does not take the request as it is (other 4xx)",
            "Look at region, endpoint and options.",
            "class:epochal.StoreRefusedError, class:obstore.InvalidPathError, * says Could not parse path, "
            "* says status code: 4",
        ),
        _edit(
            "store-config",
            "A URI or option of the store cannot work",
            "Correct `checkpoint.storage` or the sink's URI.",
            "class:epochal.StoreConfigError",
        ),
    ),
    *_of(
        Area.MACHINE,
        _person(
            "disk-full",
            "A local disk is full, or a quota is used up",
            "Give driver or executors more room.",
            "errno:28, errno:122, * says No space left on device",
        ),
        _person(
            "certificate",
            "A server's certificate is not trusted",
            "Correct the certificate, or add its authority to the image.",
            "class:ssl.SSLCertVerificationError, java:javax.net.ssl.SSLHandshakeException, "
            "* says CERTIFICATE_VERIFY_FAILED",
        ),
        _person(
            "file",
            "A file that the job reads is missing, or may not be read",
            "Put it there, or give the right to read it.",
            "errno:1, errno:2, errno:13, errno:30, class:builtins.FileNotFoundError, "
            "class:builtins.PermissionError, spark:PATH_NOT_FOUND, spark:FAILED_READ_FILE.FILE_NOT_EXIST",
        ),
        _restarts(
            "memory",
            "Driver or executor is out of memory",
            "Give it more memory if it comes again.",
            "class:builtins.MemoryError, java:java.lang.OutOfMemoryError, errno:12, * says Cannot allocate memory, "
            "* says failed to map segment from shared object",
        ),
        _waits(
            "network",
            "A connection is refused, breaks or takes too long, or a name is not known",
            _NOTHING,
            "class:builtins.ConnectionError, class:builtins.TimeoutError, class:socket.gaierror, "
            "java:java.net.ConnectException, "
            "java:java.net.UnknownHostException, java:java.net.Socket*Exception, "
            "java:java.net.NoRouteToHostException, java:java.io.EOFException, java:*ConnectTimeoutException",
        ),
    ),
    *_of(
        Area.SPARK,
        _edit(
            "spark-encryption-limit",
            "Executors send more than 2 GB at once, which Spark's AES-GCM cannot decrypt",
            "Use more partitions, or `sparkConf: {spark.network.crypto.cipher: AES/CTR/NoPadding}`.",
            "* says newLimit < 0",
        ),
        _restarts(
            "executor-lost",
            "An executor was lost, and what only it held",
            "Nothing. The next driver restores the newest epoch.",
            "* says CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND, * says EPOCHAL_STATE_NOT_HERE, "
            "* says ExecutorLostFailure, java:org.apache.spark.shuffle.FetchFailedException",
        ),
        _restarts(
            "jvm-gone",
            "Java has ended, or could not be started",
            "Look at the driver's log and memory if it comes again.",
            "class:py4j.Py4JNetworkError, spark:JAVA_GATEWAY_EXITED, * says SparkContext was shut down, "
            "* says stopped SparkContext",
        ),
        _edit(
            "jar-missing",
            "Spark does not know a source or a class",
            "Add its package to `sparkConf`, such as `spark.jars.packages`, or to the image.",
            "spark:DATA_SOURCE_NOT_FOUND, java:java.lang.ClassNotFoundException, "
            "java:java.lang.NoClassDefFoundError, * says 'JavaPackage' object is not callable",
        ),
        _person(
            "spark-table-missing",
            "There is no such table or view",
            "Create it, or correct its name in the pipeline.",
            "spark:TABLE_OR_VIEW_NOT_FOUND, spark:SCHEMA_NOT_FOUND",
        ),
        _edit(
            "row",
            "A row that the query cannot handle, such as text that is no number",
            "Filter such rows or handle them, for example with `try_cast` or a `mode` that does not fail.",
            "spark:CAST_INVALID_INPUT, spark:CAST_OVERFLOW, spark:ARITHMETIC_OVERFLOW, spark:DIVIDE_BY_ZERO, "
            "spark:NUMERIC_VALUE_OUT_OF_RANGE*, spark:INVALID_ARRAY_INDEX*, spark:USER_RAISED_EXCEPTION, "
            "spark:MALFORMED_RECORD_IN_PARSING*, spark:FAILED_READ_FILE*",
        ),
        _edit(
            "spark-plan",
            "Spark refuses the query: a column that does not exist, types that do not fit, wrong syntax",
            "Correct the pipeline.",
            "class:pyspark.AnalysisException, class:pyspark.ParseException",
        ),
    ),
    *_of(
        Area.CODE,
        _edit(
            "import",
            "A Python module or a name in it cannot be imported",
            "Add the package to the image, or correct the import.",
            "class:builtins.ImportError",
        ),
        _edit(
            "programming-error",
            "Your code, on the driver or in executors, raises what only code can be the cause of",
            "Correct the code. Of a value that it cannot handle: let it handle it.",
            "user:ArithmeticError, user:AssertionError, user:AttributeError, user:IndentationError, "
            "user:IndexError, user:KeyError, user:LookupError, user:NameError, user:NotImplementedError, "
            "user:OverflowError, user:RecursionError, user:SyntaxError, user:TypeError, "
            "user:UnboundLocalError, user:UnicodeDecodeError, user:UnicodeEncodeError, user:ValueError, "
            "user:ZeroDivisionError, user:pyspark.PySpark*",
        ),
    ),
    *_of(
        Area.EPOCHAL,
        _restarts(
            "damaged-state",
            "Stored state is missing or damaged",
            "Nothing. The next driver restores an older epoch.",
            "class:epochal.DamagedStateError",
        ),
        _restarts(
            "fenced",
            "A newer generation of the job has begun, or has taken over the target",
            "Nothing.",
            "class:epochal.FencedError, class:epochal.SinkFencedError",
        ),
        _edit(
            "newer-release",
            "A newer release has written what this one does not understand",
            "Use an image of that release.",
            "class:epochal.NewerDocumentError",
        ),
        _waits(
            "unavailable",
            "A target or a service says that it cannot serve now",
            _NOTHING,
            "class:epochal.UnavailableError",
        ),
        _person(
            "outside",
            "What the job reads from or writes to is not as it must be",
            "Do what the message says.",
            "class:epochal.OutsideError",
        ),
        _edit(
            "pipeline",
            "The pipeline, a name or a setting cannot work",
            "Do what the message says.",
            "class:epochal.PipelineError, class:epochal.InvalidNameError",
        ),
    ),
)

UNKNOWN = Fault(
    name="unknown",
    area=Area.EPOCHAL,
    what="Anything else",
    fixed_by=FixedBy.TIME,
    todo="Look at the driver's log if it comes again.",
    signs=(),
)
"""What no line names: it may be an outage that nobody has thought of."""
