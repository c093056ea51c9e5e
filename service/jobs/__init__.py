"""The one model of long work. docs/decisions/0016 describes it, with an example of a new kind of job."""
