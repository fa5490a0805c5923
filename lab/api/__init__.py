"""The lab's AWS API: moto's server for EC2, SSM and STS, and what moto lacks for GPU clusters."""
