"""What people who write a pipeline import, by way of ``from epochal import …``: nothing else is public.

May be touched to describe jobs. Nothing here runs a batch, and nothing that is public is renamed or taken away without
:func:`epochal.deprecation.deprecated`.
"""
