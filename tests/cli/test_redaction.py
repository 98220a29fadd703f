"""No secret goes into a report, however it is named and wherever it stands."""

import re

import pytest
import yaml

from epochal.cli.redaction import REDACTED, Redaction, secret_values, sounds_secret

VARIABLES = [
    "DB_PASS",
    "PASSPHRASE",
    "AZURE_STORAGE_KEY",
    "PGPASSFILE",
    "SLACK_WEBHOOK",
    "GITHUB_PAT",
    "DATABASE_URL",
    "X",
]
PARAMETERS = [
    *("db_pass", "pg_pwd", "brokerPass", "DB_PWD", "MYSQL_PWD", "auth_header", "dsn", "key", "signing_key", "ENC_KEY"),
    *(
        "api-key",
        "accountKey",
        "account.key",
        "webhook",
        "github_pat",
        "sas",
        "userPassword",
        "passwd",
        "keyPassphrase",
    ),
    *("spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net", "spark.ssl.keyPassword", "kafka.sasl.jaas.config"),
]


def shown(value: object) -> str:
    redaction = Redaction()
    redaction.know(secret_values(value))
    return redaction.text(yaml.safe_dump(redaction.data(value), width=1000))


@pytest.mark.parametrize("name", VARIABLES)
def test_each_literal_value_of_the_environment_is_hidden(name: str) -> None:
    assert "hunter2" not in shown({"spec": {"env": [{"name": name, "value": "hunter2"}]}})


def test_settings_of_the_operator_are_shown() -> None:
    env = [{"name": "EPOCHAL_DEFAULT_IMAGE", "value": "spark:1"}, {"name": "EPOCHAL_TOKEN", "value": "hunter2"}]
    assert "spark:1" in shown(env)
    assert "hunter2" not in shown(env)


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("field", ["parameters", "sparkConf"])
def test_settings_named_like_a_secret_are_hidden_there_and_elsewhere(name: str, field: str) -> None:
    assert "hunter2" not in shown({"spec": {field: {name: "hunter2"}}, "message": "cannot log in with hunter2"})


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://app:p@ss-hunter2@db/x",
        "postgresql://app:pa/ss-hunter2@db/x",
        "postgresql://app:1/hunter2@db/x",
        "https://hunter2-hunter2-hunter2@git.example/x",
        "jdbc:postgresql://db/x?user=a&password=hunter2",
        "WITH (password = 'hunter2', path = '/x')",
        "WITH (passphrase = 'hunter2')",
        "WITH (pass = 'hunter2', 'db.pwd' = 'hunter2')",
        "host=db password=''hunter2 hunter2''",
        '{"brokerPass": "hunter2"}',
        'message: "password=hunter2"',
        "a=b=c=token=hunter2",
        "github_pat_11AAAAAAA0hunter2hhh",
        "https://hooks.slack.com/services/T00/B00/hunter2",
        "Authorization: ApiKey hunter2hunter2",
        "AccountKey=hunter2==;EndpointSuffix=x",
        "https://a.blob.core.windows.net/x?sv=1&sig=hunter2%3D",
    ],
)
def test_secrets_in_text_are_hidden(text: str) -> None:
    assert "hunter2" not in Redaction().text(text)
    assert REDACTED in Redaction().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/jobs",
        "http://minio.storage:9000/bucket",
        "imageID: docker-pullable://registry.example:5000/clicks@sha256:0123456789abcdef0123456789abcdef",
        "image: registry.example:5000/clicks@sha256:0123456789abcdef",
        "credentialsSecret:\n  name: keys",
        "configMap: {name: program, key: pipeline.py}",
        "Epoch 7 is published: bypass=1, compass: north, monkey: 3",
        "tolerations:\n- key: spot\n  operator: Exists",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_fields_of_kubernetes_that_speak_of_secrets_stay() -> None:
    spec = {
        "env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "pipeline": {"configMap": {"name": "program", "key": "pipeline.py"}},
        "automountServiceAccountToken": False,
        "credentialsSecret": {"name": "keys"},
    }
    assert Redaction().data(spec) == spec
    assert not sounds_secret("partition.key.column", setting=True)


def test_a_long_line_takes_no_time() -> None:
    text = "x" * 300_000 + " a=" * 20_000 + "=" * 300_000
    assert re.sub(r"\s", "", Redaction().text(text))
