"""A job on a cluster: its pods, Jobs and what they need, as they are, and the acts that change them.

The only folder, with :mod:`epochal_operator.controller`, whose code asks the API server for a job's objects.
"""
