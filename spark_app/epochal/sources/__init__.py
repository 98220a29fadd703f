"""Sources of events that need no other system."""
