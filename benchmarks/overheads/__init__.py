"""What gpuctl costs beside the tools that people use by hand, measured in the same run."""
