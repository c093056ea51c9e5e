"""Measurements beside other tools: `make bench`. Nothing here is part of the service."""
