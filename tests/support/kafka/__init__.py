"""A real Kafka broker for tests: one node in KRaft mode on loopback."""
