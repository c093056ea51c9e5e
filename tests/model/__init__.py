import pytest

# The machine asserts in modules that are no tests themselves: their failures are to say what was compared, too.
pytest.register_assert_rewrite("tests.model")
