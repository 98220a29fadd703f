"""One Nexmark query as a job: ``query`` says which, ``eventsPerSecond`` how fast events come, ``output`` where to."""

import sys
from pathlib import Path

from epochal import Pipeline
from epochal.connectors.nexmark import Nexmark

sys.path.insert(0, str(Path(__file__).parent))
from queries import QUERIES, Events


def build(p: Pipeline) -> None:
    query = p.parameters.get("query", "q5")
    nexmark = Nexmark(events_per_second=int(p.parameters.get("eventsPerSecond", "10000")))
    events = Events(query=query, p=p, frame=nexmark.stream(p.spark), nexmark=nexmark)
    QUERIES[query](events).to_parquet("out", p.parameters["output"])
