"""Where rows come from and where they go. Each folder is one connector; ``registry.py`` lists them.

A connector may use the runtime, and knows neither pipelines nor SQL: it reads a :class:`DeclaredTable`, and writes by a
:class:`~epochal.connectors.stream_end.StreamEnd`. Spark and the clients of other systems are imported when a connector
is used: SQL is planned without them.
"""
