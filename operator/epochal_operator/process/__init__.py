"""The operator as a process: who leads, whether it works, and the threads that it must not lose.

Knows nothing of jobs.
"""
