"""What people write who know other systems, and what it is called here. Pure.

Fields, values and kinds of Flink's operator, of the Spark operators, of Structured Streaming and of Kubernetes itself.
"""

import difflib
import re
from collections.abc import Iterable

_TEMPLATE = "set it in driver.podTemplate.spec and executor.podTemplate.spec"
_OPTION = "it is an option of the source or sink: write it in the pipeline"
_CONF = "set Spark's settings in spec.sparkConf"

_FIELDS: dict[str, str] = {
    # Suspending, restarting, going back
    "suspend": "set spec.state: Suspended",
    "suspended": "set spec.state: Suspended",
    "paused": "set spec.state: Suspended",
    "desiredstate": "set spec.state: Running or Suspended",
    "upgrademode": "every edit takes a last checkpoint first; to start without state, set spec.restore.allowEmptyStart",
    "allownonrestoredstate": "set spec.restore.allowEmptyStart",
    "initialsavepointpath": "set spec.restore.fromSavepoint to the savepoint's name",
    "frominitialsavepoint": "set spec.restore.fromSavepoint",
    "savepointredeploynonce": "set the annotation epochal.dev/restart to a new value",
    "savepointtriggernonce": "use `epochal savepoint create`",
    "restartnonce": "set the annotation epochal.dev/restart to a new value",
    "job": "set spec.pipeline, and spec.executor for its size",
    "restartstrategy": "set spec.restartPolicy",
    "onfailureretries": "set spec.restartPolicy.maxRestarts",
    "onfailureretryinterval": "set spec.restartPolicy.backoff",
    "maxretries": "set spec.restartPolicy.maxRestarts",
    "backofflimit": "set spec.restartPolicy.maxRestarts",
    # Size
    "parallelism": "set spec.executor.instances and spec.executor.cores",
    "replicas": "set spec.executor.instances",
    "numexecutors": "set spec.executor.instances",
    "workers": "set spec.executor.instances",
    "taskmanager": "set spec.executor",
    "jobmanager": "set spec.driver",
    "taskslots": "set spec.executor.cores",
    "corerequest": "set cores, or resources in the podTemplate",
    "corelimit": "set resources in the podTemplate",
    "memoryoverhead": "set spec.sparkConf spark.driver.memoryOverhead or spark.executor.memoryOverhead",
    "cpu": "set cores",
    "dynamicallocation": "executors hold state, so their number is fixed: set spec.executor.instances",
    # The program
    "mainapplicationfile": "set spec.pipeline.file, module or configMap",
    "mainclass": "pipelines are Python or SQL: set spec.pipeline.module",
    "jaruri": "pipelines are Python or SQL: set spec.pipeline.module",
    "entryclass": "pipelines are Python or SQL: set spec.pipeline.module",
    "pyfiles": "put the files into the image, or mount them with spec.volumes",
    "arguments": "set spec.pipeline.parameters, a map of names to values",
    "args": "set spec.pipeline.parameters, a map of names to values",
    "query": "set spec.pipeline.sql",
    "statement": "set spec.pipeline.sql",
    "script": "set spec.pipeline.sql or file",
    "deps": "set spec.sparkConf spark.jars.packages",
    "dependencies": "set spec.sparkConf spark.jars.packages",
    "jars": "set spec.sparkConf spark.jars, or spark.jars.packages",
    "packages": "set spec.sparkConf spark.jars.packages",
    "sparkversion": "the image decides: set spec.image",
    "flinkversion": "the image decides: set spec.image",
    "pythonversion": "the image decides: set spec.image",
    "flinkconfiguration": _CONF,
    "sparkproperties": _CONF,
    "sparkconfiguration": _CONF,
    "sparkconfigmap": _CONF,
    "hadoopconf": "set spec.sparkConf, each name with spark.hadoop. before it",
    "properties": _OPTION,
    "options": _OPTION,
    # Checkpoints
    "checkpointlocation": "set spec.checkpoint.storage.uri",
    "checkpointdir": "set spec.checkpoint.storage.uri",
    "checkpointinterval": "set spec.checkpoint.interval",
    "checkpointing": "set spec.checkpoint",
    "intervalms": "set interval with its unit, such as 10s",
    "statebackend": "there is one: set spec.checkpoint.storage for where checkpoints go",
    "maxconcurrentcheckpoints": "there is always one at a time: spec.checkpoint.minPause keeps them apart",
    "minpausebetweencheckpoints": "set spec.checkpoint.minPause",
    "tolerablefailedcheckpoints": "set spec.checkpoint.tolerableFailures",
    "trigger": "checkpoints do not depend on batches: set spec.checkpoint.interval",
    "processingtime": "checkpoints do not depend on batches: set spec.checkpoint.interval",
    "bucket": "set uri: s3://BUCKET/PREFIX",
    "path": "set uri: s3://BUCKET/PREFIX",
    "location": "set uri: s3://BUCKET/PREFIX",
    "accesskey": "put it into a Secret, and its name into credentialsSecret.name",
    "secretkey": "put it into a Secret, and its name into credentialsSecret.name",
    "accesskeyid": "put it into a Secret, and its name into credentialsSecret.name",
    "secretaccesskey": "put it into a Secret, and its name into credentialsSecret.name",
    "secretref": "set credentialsSecret.name",
    "secretname": "set credentialsSecret.name",
    # Pods
    "serviceaccountname": "set spec.serviceAccount",
    "imagepullsecrets": _TEMPLATE,
    "nodeselector": _TEMPLATE,
    "tolerations": _TEMPLATE,
    "affinity": _TEMPLATE,
    "resources": _TEMPLATE + ", or cores and memory",
    "initcontainers": _TEMPLATE,
    "sidecars": _TEMPLATE,
    "securitycontext": _TEMPLATE,
    "priorityclassname": _TEMPLATE,
    "containers": _TEMPLATE,
    "template": "set driver.podTemplate and executor.podTemplate",
    "labels": "set metadata.labels, or podTemplate.metadata.labels for pods",
    "annotations": "set metadata.annotations, or podTemplate.metadata.annotations for pods",
    "volumemounts": "set mountPath in spec.volumes",
    "envfrom": "name each variable in spec.env with valueFrom",
    "envvars": "set spec.env, a list of names and values",
    "envsecretkeyrefs": "set spec.env with valueFrom.secretKeyRef",
    "ingress": "a job has no page of Spark; the operator's shows it",
    "monitoring": "the chart has monitoring: metrics.* in its values",
}

_DOTTED: tuple[tuple[str, str], ...] = (
    ("properties.", "leave out properties.: for a Kafka source the option is kafka.bootstrap.servers, in SQL too"),
    ("kafka.", _OPTION),
    ("bootstrap.servers", "the option of a Kafka source is kafka.bootstrap.servers: " + _OPTION),
    ("state.checkpoints.dir", "set spec.checkpoint.storage.uri"),
    ("state.savepoints.dir", "savepoints are in the job's store: spec.checkpoint.storage.uri"),
    ("state.backend", "there is one: set spec.checkpoint.storage for where checkpoints go"),
    ("execution.checkpointing.interval", "set spec.checkpoint.interval"),
    ("execution.", "set spec.checkpoint"),
    ("taskmanager.", "set spec.executor"),
    ("jobmanager.", "set spec.driver"),
    ("parallelism.default", "set spec.executor.instances and spec.executor.cores"),
    ("fs.s3a.", "Epochal reads s3:// by itself: set spec.checkpoint.storage"),
    ("hadoop.", "write spark.hadoop. before it"),
)

_SCHEMES: dict[str, str] = {
    "s3a": "write s3://; s3a:// is the name of Hadoop's client, which checkpoints do not use",
    "s3n": "write s3://; s3n:// is the name of Hadoop's client, which checkpoints do not use",
    "gcs": "write gs://",
    "abfs": "write az://CONTAINER/PREFIX",
    "abfss": "write az://CONTAINER/PREFIX",
    "wasb": "write az://CONTAINER/PREFIX",
    "wasbs": "write az://CONTAINER/PREFIX",
    "hdfs": "HDFS has no create-if-absent that Epochal could use: use an object store",
    "dbfs": "name the object store below it: s3://, gs:// or az://",
    "http": "name the bucket in uri, s3://BUCKET/PREFIX, and the server in endpoint",
    "https": "name the bucket in uri, s3://BUCKET/PREFIX, and the server in endpoint",
}

_KINDS: dict[str, str] = {
    "SparkApplication": "it is the Spark operator's: a StreamingJob has spec.pipeline, driver and executor",
    "ScheduledSparkApplication": "streaming jobs run all the time: write kind: StreamingJob",
    "FlinkDeployment": "it is Flink's: write kind: StreamingJob, with spec.pipeline in Python or SQL",
    "FlinkSessionJob": "it is Flink's: write kind: StreamingJob, each with a driver of its own",
    "FlinkStateSnapshot": "it is Flink's",
    "Deployment": "it is Kubernetes' own: write kind: StreamingJob",
    "Job": "it is Kubernetes' own: write kind: StreamingJob",
}

_WORDS = re.compile(
    r"^(\d+(?:\.\d+)?)\s*(milliseconds?|millis|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|d)$", re.I
)
_ISO = re.compile(r"^P(?:\d+D)?T?(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?$")
_UNITS = {"milli": "ms", "sec": "s", "min": "m", "h": "h"}


def field_hint(name: str, known: Iterable[str]) -> str:
    """What an unknown field should have been: ours for another system's, or the one that it is nearly."""
    plain = re.sub(r"[-_]", "", name).lower()
    close = difflib.get_close_matches(name, list(known), n=1)
    same = next((one for one in known if one.lower() == plain), "")
    if same:
        return f"did you mean {same}?"
    if plain in _FIELDS:
        return _FIELDS[plain]
    for begin, hint in _DOTTED:
        if name.startswith(begin):
            return hint
    return f"did you mean {close[0]}?" if close else ""


def setting_hint(name: str) -> str:
    """Of a name in spec.sparkConf that is none of Spark's."""
    return next((hint for begin, hint in _DOTTED if name.startswith(begin)), "")


def kind_hint(kind: str) -> str:
    return _KINDS.get(kind, "")


def uri_hint(uri: str) -> str:
    scheme, colon, _ = uri.partition("://")
    if not colon:
        return f"write file://{uri} for a directory of this machine" if uri.startswith("/") else ""
    return _SCHEMES.get(scheme.lower(), "")


def value_hint(value: object, allowed: Iterable[str]) -> str:
    """Of a value that is none of a list: its spelling, or the word that means the same."""
    text = str(value)
    same = next((one for one in allowed if one.lower() == text.lower()), "")
    meant = {"paused": "Suspended", "stopped": "Suspended", "started": "Running", "active": "Running"}.get(
        text.lower(), ""
    )
    close = difflib.get_close_matches(text, list(allowed), n=1)
    found = same or (meant if meant in list(allowed) else "") or (close[0] if close else "")
    return f"write {found}" if found else ""


def duration_hint(text: str) -> str:
    """Of what is a duration elsewhere: ``10 seconds``, ``PT10S``, ``10000``."""
    if words := _WORDS.match(text.strip()):
        number, unit = words[1], words[2].lower()
        if unit.startswith("d"):
            return f"write {float(number) * 24:g}h"
        short = next(short for begin, short in _UNITS.items() if unit.startswith(begin))
        return f"write {number}{short}" if number.isdigit() else ""
    if text and _ISO.match(text) and len(text) > 1:
        return "write it without P and T, in small letters, such as 10s or 1m30s"
    return f"write {text}ms or {text}s: a duration has a unit" if text.isdigit() else ""
