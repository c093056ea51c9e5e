"""How many examples a property is tried with here, so that the unit tests stay within half a minute."""

from hypothesis import HealthCheck, settings

# How long an example takes to make says how busy the machine is.
settings.register_profile("unit", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
