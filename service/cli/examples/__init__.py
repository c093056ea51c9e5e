"""The examples of every command: help, documents and tests have the same."""
