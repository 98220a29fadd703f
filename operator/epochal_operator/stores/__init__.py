"""The jobs' stores, which the operator reads and does not trust: bounded, and with the jobs' own credentials."""
