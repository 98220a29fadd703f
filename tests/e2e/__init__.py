"""The whole thing on a real cluster: chart, operator, drivers, executors, cleanups and an S3 server."""
