"""The build of Pulumi's engine where get.pulumi.com cannot be reached: no part of the product."""
