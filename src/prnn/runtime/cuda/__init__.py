"""The GPU: compiles kernels, keeps them in a cache, loads and launches them. Loads no library before it is asked to."""
