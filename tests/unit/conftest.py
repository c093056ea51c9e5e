"""How many examples a property is tried with here, so that the unit tests stay within half a minute."""

from hypothesis import settings

settings.register_profile("unit", max_examples=30)
settings.load_profile("unit")
