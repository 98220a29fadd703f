"""What makes a stream a changelog. SQL is planned by it, so without Spark."""

ROW_KIND = "row_kind"
"""The column that says whether a row is added or taken back."""
