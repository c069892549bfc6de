"""The promises of algorithms and environments, tried out for `steps.check` and the tests."""
