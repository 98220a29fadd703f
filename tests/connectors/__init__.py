"""Sinks against the real servers: what they hold after commits that were cut off, made again, or came too late."""
