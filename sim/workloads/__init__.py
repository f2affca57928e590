"""What GPUs compute: sub-layers of the paper's Table 2, tile order, caches, kernels, calibration, recorded traces."""
