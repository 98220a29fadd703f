"""The built-in sinks: what an epoch produced becomes visible once, after the epoch is published."""
