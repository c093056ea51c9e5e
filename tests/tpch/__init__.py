"""TPC-H: its queries, its data, and changes to it."""
