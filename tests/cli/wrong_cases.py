"""Wrong inputs, each with words that the answer must hold: the table behind docs/wrong-input.md."""

from itertools import pairwise
from typing import Any

from tests.cli.wrong_input import Wrong

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in pairwise("abcdefg")
)
HEAD = "apiVersion: epochal.dev/v1alpha1\nkind: StreamingJob\nmetadata:\n  name: words\n"


def spec(path: str, value: Any, says: str, *, warns: bool = False) -> Wrong:
    return Wrong(changes={f"spec/{path}": value}, says=says, warns=warns)


def program(text: str, says: str, *, warns: bool = False) -> Wrong:
    return Wrong(program=text, says=says, warns=warns)


def command(line: str, says: str, *, warns: bool = False) -> Wrong:
    return Wrong(arguments=tuple(line.split()), says=says, warns=warns)


def text(manifest: str, says: str) -> Wrong:
    return Wrong(text=manifest, says=says)


PODS = "podTemplate"

FLINK = [
    Wrong(changes={"kind": "FlinkDeployment"}, says="it is Flink's: write kind: StreamingJob"),
    Wrong(changes={"kind": "FlinkSessionJob"}, says="each with a driver of its own"),
    spec("job", {"parallelism": 4}, "spec.job: unknown field"),
    spec("parallelism", 4, "set spec.executor.instances and spec.executor.cores"),
    spec("upgradeMode", "savepoint", "every edit takes a last checkpoint first"),
    spec("suspended", True, "set spec.state: Suspended"),
    spec("state", "suspended", "write Suspended"),
    spec("state", "running", "write Running"),
    spec("initialSavepointPath", "s3://x/y", "set spec.restore.fromSavepoint"),
    spec("allowNonRestoredState", True, "set spec.restore.allowEmptyStart"),
    spec("restartNonce", 3, "set the annotation epochal.dev/restart"),
    spec("savepointRedeployNonce", 3, "set the annotation epochal.dev/restart"),
    spec("flinkConfiguration", {"a": "b"}, "set Spark's settings in spec.sparkConf"),
    spec("jobManager", {"replicas": 1}, "set spec.driver"),
    spec("taskManager", {"replicas": 2}, "set spec.executor"),
    spec("flinkVersion", "v1_20", "the image decides"),
    spec("sparkConf", {"execution.checkpointing.interval": "10s"}, "set spec.checkpoint.interval"),
    spec("sparkConf", {"state.backend": "rocksdb"}, "there is one: set spec.checkpoint.storage"),
    spec("sparkConf", {"properties.bootstrap.servers": "k:9092"}, "leave out properties."),
    spec("sparkConf", {"parallelism.default": "4"}, "set spec.executor.instances"),
    spec("checkpoint/interval", "PT10S", "without P and T"),
]

SPARK = [
    Wrong(changes={"kind": "SparkApplication"}, says="it is the Spark operator's"),
    Wrong(changes={"kind": "ScheduledSparkApplication"}, says="streaming jobs run all the time"),
    spec("mainApplicationFile", "local:///app/words.py", "set spec.pipeline.file, module or configMap"),
    spec("mainClass", "org.example.Words", "pipelines are Python or SQL"),
    spec("arguments", ["a"], "set spec.pipeline.parameters"),
    spec("deps", {"packages": ["x"]}, "set spec.sparkConf spark.jars.packages"),
    spec("hadoopConf", {"fs.x": "y"}, "each name with spark.hadoop. before it"),
    spec("sparkProperties", {"spark.x": "y"}, "set Spark's settings in spec.sparkConf"),
    spec("sparkVersion", "4.2.0", "the image decides"),
    spec("dynamicAllocation", {"enabled": True}, "their number is fixed: set spec.executor.instances"),
    spec("driver", {"coreLimit": "1200m"}, "set resources in the podTemplate"),
    spec("driver", {"memoryOverhead": "1g"}, "spark.driver.memoryOverhead"),
    spec("driver", {"serviceAccount": "spark"}, "spec.driver.serviceAccount: unknown field"),
    spec("executor", {"replicas": 3}, "set spec.executor.instances"),
    spec("restartPolicy", {"type": "OnFailure"}, "spec.restartPolicy.type: unknown field"),
    spec("restartPolicy", {"onFailureRetries": 3}, "set spec.restartPolicy.maxRestarts"),
    spec("checkpointLocation", "s3a://bucket/x", "set spec.checkpoint.storage.uri"),
    spec("trigger", "10 seconds", "set spec.checkpoint.interval"),
    spec("checkpoint/interval", "10 seconds", "write 10s"),
    spec("checkpoint/interval", "5 minutes", "write 5m"),
    spec("checkpoint/interval", "10000", "write 10000ms or 10000s"),
    spec("checkpoint/interval", 10, "is no string: put it in quotes"),
    spec("sparkConf", {"fs.s3a.endpoint": "http://x"}, "Epochal reads s3:// by itself"),
    spec("sparkConf", {"spark.jars": "lib/none.jar"}, "there is no file lib/none.jar", warns=True),
    spec("sparkConf", {"spark.jars.packages": "spark-sql-kafka"}, "write group:artifact:version"),
    spec(
        "sparkConf",
        {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.12:4.2.0"},
        "Spark has 2.13",
        warns=True,
    ),
    spec(
        "sparkConf",
        {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.1"},
        "for another Spark",
        warns=True,
    ),
    spec("sparkConf", {"spark.jars.packages": "a:b:1,a:b:2"}, "is named twice", warns=True),
]

STORES = [
    spec("checkpoint/storage/uri", "s3a://bucket/x", "write s3://"),
    spec("checkpoint/storage/uri", "s3n://bucket/x", "write s3://"),
    spec("checkpoint/storage/uri", "gcs://bucket/x", "write gs://"),
    spec("checkpoint/storage/uri", "abfss://c@a.dfs.core.windows.net/x", "write az://CONTAINER/PREFIX"),
    spec("checkpoint/storage/uri", "hdfs://namenode/x", "use an object store"),
    spec("checkpoint/storage/uri", "dbfs:/x", "write s3://BUCKET/PREFIX"),
    spec("checkpoint/storage/uri", "https://minio:9000/bucket", "and the server in endpoint"),
    spec("checkpoint/storage/uri", "/data/checkpoints", "write file:///data/checkpoints"),
    spec("checkpoint/storage", {"bucket": "b"}, "set uri: s3://BUCKET/PREFIX"),
    spec("checkpoint/storage", {"uri": "s3://b/x", "accessKey": "A"}, "put it into a Secret"),
    spec("checkpoint/storage", {"uri": "s3://b/x", "secretRef": {"name": "k"}}, "set credentialsSecret.name"),
]

KUBERNETES = [
    Wrong(changes={"kind": "Deployment"}, says="it is Kubernetes' own"),
    Wrong(changes={"kind": "streamingjob"}, says="exactly one StreamingJob is needed"),
    Wrong(changes={"apiVersion": "v1"}, says="an epochal.dev/v1alpha1 StreamingJob is needed"),
    Wrong(changes={"metadata/name": "My_Words"}, says="use a-z, 0-9 and '-'"),
    Wrong(changes={"metadata/lables": {"a": "b"}}, says="did you mean labels?"),
    spec("replicas", 3, "set spec.executor.instances"),
    spec("nodeSelector", {"disk": "ssd"}, PODS),
    spec("tolerations", [], PODS),
    spec("imagePullSecrets", [{"name": "x"}], PODS),
    spec("resources", {"limits": {"cpu": 1}}, PODS),
    spec("serviceAccountName", "me", "set spec.serviceAccount"),
    spec("volumeMounts", [], "set mountPath in spec.volumes"),
    spec("envFrom", [], "name each variable in spec.env"),
    spec("labels", {"a": "b"}, "set metadata.labels"),
    spec("suspend", True, "set spec.state: Suspended"),
    spec("driver", {"memory": "4Gi"}, "such as 512m or 4g (not 4Gi)"),
    spec(
        "env",
        [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "only a cluster can look up P",
        warns=True,
    ),
]

MISSPELT = [
    spec("checkpont", {}, "did you mean checkpoint?"),
    spec("checkpoint/intervall", "10s", "did you mean interval?"),
    spec("checkpoint/min_pause", "1s", "did you mean minPause?"),
    spec("checkpoint/MinPause", "1s", "did you mean minPause?"),
    spec("restart_policy", {}, "did you mean restartPolicy?"),
    spec("pipeline", {"fle": "words.py"}, "did you mean file?"),
]

YAML = [
    text("", "it holds nothing"),
    text("just words\n", "this is not a manifest"),
    text(HEAD + "spec:\n\tpipeline: {}\n", "is not valid YAML"),
    text(HEAD + "spec:\n  pipeline: {file: words.py\n", "is not valid YAML"),
    text(HEAD + "spec: {state: Running, state: Suspended}\n", "'state' is set twice"),
    text("- a\n- b\n", "this is not a manifest"),
    text(HEAD + "spec: {pipeline: {file: words.py}}\n---\n" + HEAD + "spec: {}\n", "exactly one StreamingJob"),
    text(HEAD, "spec is missing"),
    text(HEAD + "spec: {}\n", "pipeline is missing"),
    text("a: &x [*x]\n", "it contains itself, by an alias"),
    text(BOMB, "its aliases stand for too much"),
]

PROGRAMS = [
    spec("pipeline", {"file": "none.py"}, "there is no file ./none.py"),
    spec("pipeline", {"file": "."}, "spec.pipeline.file"),
    spec("pipeline", {"module": "jobs.none"}, "there is no module 'jobs.none' here", warns=True),
    spec(
        "pipeline",
        {"configMap": {"name": "program"}},
        "ConfigMap program is not in this file: its program is not checked",
        warns=True,
    ),
    spec("pipeline", {"file": "words.py"}, "words.py, line 2: parameter 'output' is not set", warns=True),
    spec("pipeline/function", "make", "there is no function 'make' in it, only build"),
    program("def build(p)\n    pass\n", "line 1: it is no Python"),
    program("def build(p):\n  if p:\n pass\n", "line 3: it is no Python"),
    program("x = 1\n", "there is no function 'build' in it, only x"),
    program(
        "import no_such_library\n\ndef build(p): ...\n", "line 1: there is no module 'no_such_library'", warns=True
    ),
    program("def build(p):\n    from no_such import x\n", "line 2: there is no module 'no_such'", warns=True),
    program(
        "def build(p):\n    p.spark.readStream.format('kafka').load()\n",
        "line 2: format 'kafka' needs a jar",
        warns=True,
    ),
    program("def build(p):\n    p.spark.readStream.format('delta').load()\n", "io.delta:delta-spark", warns=True),
    program("def build(p):\n    p.parameters['inptu']\n", "line 2: parameter 'inptu' is not set", warns=True),
    spec("pipeline", {"sql": "CREATE SOURCE words"}, "the SQL cannot be run"),
    spec("pipeline", {"sql": "SELECT 1"}, "the SQL cannot be run"),
    spec("pipeline", {"sql": "INSERT INTO out SELECT '${limit}' FROM words"}, "there is no parameter 'limit'"),
]

COMMANDS = [
    command("staus job.yaml", "Did you mean 'status'?"),
    command("chekpoints job.yaml", "Did you mean 'checkpoints'?"),
    command("validate", "Missing argument 'MANIFEST'"),
    command("validate none.yaml", "none.yaml cannot be read: No such file or directory"),
    command("validate .", "cannot be read: Is a directory"),
    command("validate job.yaml --strict", "No such option"),
    command("validate job.yaml --set limit", "write --set KEY=VALUE"),
    command("validate job.yaml --set ouptut=x", "the pipeline has no such parameter: did you mean output?"),
    command("validate job.yaml --set limit=5", "--set limit: the pipeline names no such parameter", warns=True),
    command("run job.yaml --until-epoch 0", "0 is not in the range"),
    command("run job.yaml --untill-epoch 3", "--until-epoch"),
    command("run words", "words cannot be read"),
    command("checkpoints job.yaml --last many", "'many' is not a valid integer"),
    command("checkpoints Job_1", "Job_1 is no file, and no job on a cluster can have that name"),
    command("checkpoints ftp://host/x", "ftp"),
    command("status words", "there is no kubeconfig that can be used"),
    command("inspect job.yaml --epoch 1 --savepoint a", "give --epoch or --savepoint, not both"),
    command("timeline job.yaml", "has ended here yet"),
    command("graph job.yaml --format png", "'png' is not one of 'tree', 'mermaid', 'dot'"),
    command("logs job.yaml", "there is no log"),
    command("logs job.yaml --executor 1", "a job on this machine has no executors"),
    command("suspend job.yaml", "no `epochal run` runs this job here"),
    command("resume job.yaml", "use `epochal run`"),
    command("restart job.yaml", "stop `epochal run` with Ctrl-C and run it again"),
    command("scale job.yaml --replicas 2", "spark.master to local[N]"),
    command("scale job.yaml", "Missing option '--replicas'"),
    command("describe job.yaml", "`epochal status` shows all there is of it"),
    command("get words -A", "give a NAME or --all-namespaces, not both"),
    command("get -o xml", "'xml' is not one of"),
    command("doctor words -A", "give a NAME or --all-namespaces, not both"),
    command("report job.yaml -o report.rar", "end its name with .tar.gz or .zip"),
    command("completion powershell", "'powershell' is not one of 'bash', 'zsh', 'fish'"),
    command("cleanup file:///none --job words --min-epoch 0", "0 is not in the range"),
    command("cleanup s3a://bucket/x --job words --min-epoch 1", "s3a"),
]

SECTIONS: list[tuple[str, list[Wrong]]] = [
    ("As Flink spells it", FLINK),
    ("As Spark and its operators spell it", SPARK),
    ("Stores", STORES),
    ("As Kubernetes' own kinds spell it", KUBERNETES),
    ("Misspelt", MISSPELT),
    ("YAML", YAML),
    ("Programs", PROGRAMS),
    ("Commands and options", COMMANDS),
]
