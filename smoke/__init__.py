"""The ladder of steps with which an AWS account is tried for the first time: `make aws-smoke`."""
