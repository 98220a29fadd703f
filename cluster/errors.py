"""What a person has to do something about."""


class ClusterError(Exception):
    """The cluster cannot be made as things are; the message says what to do about it."""
