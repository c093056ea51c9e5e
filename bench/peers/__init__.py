"""The tools that Firn is compared with, each in a process that takes commands, one line of JSON each."""
