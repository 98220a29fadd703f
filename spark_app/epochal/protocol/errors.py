"""Everything that can go wrong in the protocol, named by what the person running a job sees."""


class ProtocolError(Exception):
    """Base of all errors of :mod:`epochal.protocol`."""


class InvalidNameError(ProtocolError, ValueError):
    """A name from a user, or an object name in the store, that is not allowed."""


class InvalidBarrierError(ProtocolError, ValueError):
    """A barrier whose fields are missing, unknown or contradict each other."""


class DocumentError(ProtocolError):
    """An object in the store that cannot be used. ``name`` says which one."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class TruncatedDocumentError(DocumentError):
    """The object ends before its document does: a write that was cut off."""


class MalformedDocumentError(DocumentError):
    """The object is no JSON document of ours."""


class WrongKindError(DocumentError):
    """A document of ours, but of another kind than its name promises."""


class UnknownVersionError(DocumentError):
    """A document of a version that never was."""


class ChecksumError(DocumentError):
    """The body is not the one that was written."""


class InvalidDocumentError(DocumentError):
    """A field is missing, unknown, of the wrong type or out of bounds; or the document contradicts its name."""


class NewerDocumentError(ProtocolError):
    """A whole document of ours that this release does not understand: another one wrote it, mostly a newer one.

    No :class:`DocumentError`, so that nobody takes it for damage and goes back to an older epoch: it is as good as ever
    to the release that wrote it. ``kind`` says what it is.
    """

    def __init__(self, name: str, problem: str, *, kind: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem
        self.kind = kind


class StoreError(ProtocolError):
    """The object store did not do what was asked. ``uri`` says which store."""

    def __init__(self, uri: str, problem: str) -> None:
        super().__init__(f"{uri}: {problem}")
        self.uri = uri
        self.problem = problem


class StoreConfigError(StoreError):
    """A store URI or option that cannot work, found before any request."""


class ObjectMissingError(StoreError):
    """The store works, but has no object of that name."""


class MissingBucketError(StoreError):
    """The store answers, but has no bucket (container, directory) of that name."""


class BadCredentialsError(StoreError):
    """The store does not know the access key, or the secret does not fit it."""


class AccessDeniedError(StoreError):
    """The store knows who is asking, and says no."""


class StoreFullError(StoreError):
    """There is no room left. Not tried again: it does not get better within seconds."""


class StoreRefusedError(StoreError):
    """The store answers, and does not take the request as it is: a wrong region, or a server that cannot do it."""


class UnsafeStoreError(StoreError):
    """The store does not honour create-if-absent: two drivers would both win, so nothing may run on it."""


class StoreUnreachableError(StoreError):
    """Nothing answers at the store's endpoint."""


class StoreUnavailableError(StoreError):
    """The store answers, but with errors (or too late), and kept doing so until the deadline."""
