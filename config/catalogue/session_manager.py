"""The permissions that an instance needs for Session Manager."""

ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": list(ACTIONS), "Resource": "*"}],
}
"""No more than that: AWS's own policy, AmazonSSMManagedInstanceCore, also lets a job read the
account's parameters. These actions are from "Create a custom IAM role for Session Manager",
"minimal Session Manager permissions"
(https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-create-iam-instance-profile.html,
2026-11-22)."""
