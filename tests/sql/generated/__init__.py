"""Queries made by chance, and what they must give.

``python -m tests.sql.generated`` plans or runs as many as you ask for; ``--seed`` plays one again.
"""
