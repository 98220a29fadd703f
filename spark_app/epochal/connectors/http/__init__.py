"""Rows posted to a web server."""

from collections.abc import Mapping

from epochal.connectors.connector import Connector, Option, Promise, TakingBack, Writes, whole_number
from epochal.connectors.declared_table import DeclaredTable
from epochal.connectors.stream_end import StreamEnd, named_by
from epochal.runtime.durations import Duration, to_micros

HEADER = "header."
"""Options that begin so are headers of each request, without this."""


def _write(stream: "Http", name: str, table: DeclaredTable) -> None:
    stream.to_http(
        name,
        table.options["url"],
        headers=table.options_of(HEADER),
        rows_per_request=int(table.option("rows-per-request", "500")),
    )


class Http(StreamEnd):
    _connector = Connector(
        name="http",
        title="HTTP",
        writes=Writes(
            method="to_http",
            table=_write,
            promise=Promise(
                guarantee="**at least once**",
                how="a request that comes again has the same key",
                tests=("connectors/test_http.py",),
            ),
            taking_back=(TakingBack(how="rows that were posted stay where they were sent"),),
        ),
        options={
            "url": Option("the address that rows are posted to", required=True),
            "rows-per-request": Option("the most rows in a request; default 500", whole_number),
        },
        prefixes={HEADER: "a header of each request"},
    )

    def to_http(
        self,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        rows_per_request: int = 500,
        timeout: Duration = "30 seconds",
        patience: Duration = "10 minutes",
    ) -> None:
        """POST rows as JSON arrays, **at least once**: after a crash, or when an answer was lost, a request comes
        again, with the same body and the same ``Idempotency-Key`` (``namespace/job/operator/epoch/part``).

        A server that does not answer, or answers 408, 409, 425, 429 or 5xx, is asked again for ``patience`` (at most
        5 minutes while a driver starts); any other answer than 2xx ends the driver.
        """
        from epochal.connectors.http.sink import HttpSink, HttpTarget

        with named_by(name):
            target = HttpTarget(
                url=url,
                headers=dict(headers or {}),
                rows_per_request=rows_per_request,
                timeout=to_micros(timeout) / 1e6,
                patience=to_micros(patience) / 1e6,
            )
        self.to(name, HttpSink(target, self._store()))
