"""Which options a driver gives to its JVM."""

import pytest

from epochal.driver import JVM, jvm_options


def test_driver_and_executors_have_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xss4m")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xlog:cds=off")
    options = jvm_options()
    assert options["spark.driver.extraJavaOptions"] == options["spark.executor.extraJavaOptions"] == " ".join(JVM)


@pytest.mark.parametrize("variable", ["SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS"])
def test_a_garbage_collector_of_the_environment_is_left_alone(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "-XX:+UseG1GC")
    assert jvm_options() == {}
