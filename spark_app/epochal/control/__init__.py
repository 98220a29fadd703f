"""The loop that keeps a job running, wherever its driver runs: it knows neither Kubernetes nor Spark.

The operator's backend (pods) and the command line's (processes) both use it. :func:`~epochal.control.lifecycle.decide`
is pure; what asks and acts is behind :class:`~epochal.control.reconcile.Backend`.
"""
