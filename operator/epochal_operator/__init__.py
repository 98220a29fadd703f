"""The control plane: a kopf operator that keeps each StreamingJob running and runs its checkpoint timer."""
