#!/bin/sh
# Spark starts executor pods with the one argument `executor` and all else in the environment. Any other arguments
# are a command of their own, such as the driver's.
set -eu

if [ "${1:-}" != executor ]; then
    exec "$@"
fi

# Spark numbers its options for the JVM: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …
set --
number=0
while option=$(printenv "SPARK_JAVA_OPT_$number"); do
    set -- "$@" "$option"
    number=$((number + 1))
done

# The same order as in a driver, and nothing before it: otherwise the archive of classes would be of no use.
classpath=$(echo "$SPARK_HOME"/jars/slf4j-api-*.jar):$SPARK_HOME/jars/*
[ -z "${SPARK_CLASSPATH:-}" ] || classpath=$SPARK_CLASSPATH:$classpath

exec java "$@" \
    "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$classpath" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
