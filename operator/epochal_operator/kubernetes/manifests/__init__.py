"""The Kubernetes objects of a job, built from its spec. Pure: the same spec gives the same objects."""
