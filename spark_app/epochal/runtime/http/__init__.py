"""What a driver serves: the control server, its metrics, and what its parts report.

Talks to the engine through an interface of its own, and imports nothing else of the runtime.
"""
