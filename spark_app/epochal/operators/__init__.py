"""The built-in operators. Each keeps its state in tables of immutable runs."""
