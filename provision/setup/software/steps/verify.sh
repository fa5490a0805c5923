# The client asks again and judges, over all nodes; here it stands in the log of the boot.
/opt/gpuctl/verify || true
