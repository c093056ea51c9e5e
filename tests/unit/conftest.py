"""How many examples a property is tried with here: few, again and again; `make test-all` takes its time."""

from hypothesis import HealthCheck, settings

# How long an example takes to make says how busy the machine is.
settings.register_profile("unit", max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("unit"), max_examples=200)
settings.load_profile("unit")
