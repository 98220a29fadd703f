"""Labels and annotations by which people and programs find a job's objects: of the operator and of the command line."""

from enum import StrEnum

JOB_LABEL = "epochal.dev/job"
ROLE_LABEL = "epochal.dev/role"
GENERATION_LABEL = "epochal.dev/generation"

RESTART_ANNOTATION = "epochal.dev/restart"
"""A new value restarts the job's driver: after a last checkpoint if it runs, at once if it has failed."""

PLURAL = "streamingjobs"
"""Of the kind, in the paths of the API."""


class Role(StrEnum):
    DRIVER = "driver"
    EXECUTOR = "executor"
    CLEANUP = "cleanup"
