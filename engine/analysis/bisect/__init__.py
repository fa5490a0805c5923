"""`gpuctl bisect`: which node, or which pair of nodes, holds the fleet back."""
