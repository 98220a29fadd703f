"""``epochal doctor``: what is wrong with a cluster, its operator and its jobs, and what to do about it.

Each check is a function of what was seen and yields findings. Seeing (:mod:`.seen`) asks the API server; checks ask
nobody.
"""
