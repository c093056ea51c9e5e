"""Firn: JSON requests over Apache Iceberg tables."""

VERSION = "0.1.0"
