"""Property tests here are bounded by their examples, not by a clock that others share."""

from hypothesis import settings

settings.register_profile("offsetlog", deadline=None)
settings.load_profile("offsetlog")
