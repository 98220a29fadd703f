"""From an aligned barrier to committed sinks: persist, publish, commit, take back.

The only part of the runtime that writes manifests. It sees tasks and tables, and never a batch.
"""
