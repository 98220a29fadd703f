"""The rules of an epoch: what is written where, in which order, and who may write it.

Nothing here knows Spark, kopf or Kubernetes: a module is either pure or does object-store I/O only.
Start with :mod:`~epochal.protocol.progress` (when does a checkpoint start and end?) and
:mod:`~epochal.protocol.publish` (what makes an epoch real?).
"""
