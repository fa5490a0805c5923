module gpuctl.entropy

go 1.25
