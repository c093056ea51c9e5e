"""The tools we measure beside, each a process that is told what to do, a line of JSON at a time."""
