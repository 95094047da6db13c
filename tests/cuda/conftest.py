"""These tests need an NVIDIA GPU with thread-block clusters; elsewhere they are skipped, and say why."""

import pytest
import torch


def _missing():
    if not torch.cuda.is_available():
        return "there is no CUDA device, or PyTorch was built without CUDA"
    if torch.cuda.get_device_capability() < (9, 0):
        return f"{torch.cuda.get_device_name()} has no thread-block clusters (sm_90 or newer has)"
    return None


MISSING = _missing()


def pytest_collection_modifyitems(items):
    if MISSING:
        for item in items:
            if "tests/cuda" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason=MISSING))
