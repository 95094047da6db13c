"""These tests need an NVIDIA GPU, some of them one with thread-block clusters; elsewhere they are skipped, and say why."""

import pytest
import torch


def _missing(file_name):
    if not torch.cuda.is_available():
        return "there is no CUDA device, or PyTorch was built without CUDA"
    capability = torch.cuda.get_device_capability()
    if capability < (8, 0):
        return f"{torch.cuda.get_device_name()} is older than the kernels know (sm_80 or newer)"
    if "cluster" in file_name and capability < (9, 0):
        return f"{torch.cuda.get_device_name()} has no thread-block clusters (sm_90 or newer has)"
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        missing = "tests/cuda" in item.path.as_posix() and _missing(item.path.name)
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))
