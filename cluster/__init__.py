"""A real single-node Kubernetes and an S3 server, by one command: `python -m cluster up`."""
