# The images of both planes: `operator` and `spark`. Drivers, executors and cleanup Jobs run from `spark`.
#
#   docker build --target operator -t epochal-operator .
#   docker build --target spark -t epochal-spark .
#
# What changes seldom comes first: an edit of the sources makes only the last layers anew. Dependencies are not copied
# from one stage to another, because buildah would compare all their files at every build.

FROM python:3.11-slim-bookworm AS base
# Java and Hadoop ask for the name of the user they run as, so a number without an entry is not enough.
RUN useradd --uid 10001 --user-group --create-home --shell /usr/sbin/nologin epochal
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /app

FROM base AS project
COPY docker/reduce_project.py pyproject.toml ./
RUN python reduce_project.py pyproject.toml /tmp/pyproject.toml

FROM base AS operator
COPY docker/install-dependencies.sh uv.lock ./
COPY --from=project /tmp/pyproject.toml ./
RUN ./install-dependencies.sh operator
COPY crds crds
COPY spark_app spark_app
COPY operator operator
USER 10001:10001
CMD ["python", "-m", "epochal_operator"]

FROM base AS spark
# The packages of Java expect a directory that slim images leave out.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get -qq update \
    && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends openjdk-17-jre-headless >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY docker/install-dependencies.sh docker/unused-jars.txt uv.lock ./
COPY --from=project /tmp/pyproject.toml ./
RUN ./install-dependencies.sh spark postgres kafka delta iceberg protobuf && ln -s /app/.venv/lib/python3*/site-packages/pyspark /opt/spark
ENV SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=/app/.venv/bin/python
COPY docker/warm_up.py ./
RUN SPARK_LOCAL_IP=127.0.0.1 python warm_up.py /opt/spark-classes.jsa >/tmp/warm-up.log 2>&1 \
    || { cat /tmp/warm-up.log; exit 1; }; \
    test -s /opt/spark-classes.jsa && rm -r /tmp/warm-up.log /tmp/hsperfdata_root
# Where an archive does not fit the JVM's options or classes, it is left aside, and nobody needs to be told.
ENV JAVA_TOOL_OPTIONS="-XX:SharedArchiveFile=/opt/spark-classes.jsa -Xlog:cds=off -Xlog:cds+dynamic=off"
COPY docker/spark-entrypoint.sh /opt/entrypoint.sh
COPY crds crds
COPY spark_app spark_app
COPY operator operator
USER 10001:10001
ENTRYPOINT ["/opt/entrypoint.sh"]
CMD ["python", "-m", "epochal.driver"]
