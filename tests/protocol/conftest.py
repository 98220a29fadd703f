"""Settings of the protocol's tests."""

from hypothesis import settings

# A busy machine is slow at times: that says nothing about the code.
settings.register_profile("epochal", deadline=None)
settings.load_profile("epochal")
