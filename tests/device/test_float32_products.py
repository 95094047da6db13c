"""How float32 is multiplied on a GPU: as PyTorch's RNNs do it, and only while a layer runs."""

import pytest
import torch

from prnn.ops import cuda

matmul = torch.backends.cuda.matmul


def setting():
    return matmul.fp32_precision if hasattr(matmul, "fp32_precision") else matmul.allow_tf32


@pytest.mark.parametrize("tf32", [False, True])
def test_the_setting_is_put_back(tf32):
    before = setting()
    with pytest.raises(KeyError), cuda.float32_products(tf32):
        assert setting() in (("tf32", True) if tf32 else ("ieee", False))
        raise KeyError
    assert setting() == before


def test_what_holds_for_rnns_is_read(monkeypatch):
    assert cuda.allows_tf32()  # PyTorch's default
    try:
        torch.backends.cudnn.allow_tf32 = False
        assert not cuda.allows_tf32()
    finally:
        torch.backends.cudnn.allow_tf32 = True
    if hasattr(torch.backends.cudnn, "rnn"):
        monkeypatch.setattr(torch.backends.cudnn.rnn, "fp32_precision", "ieee")
        assert not cuda.allows_tf32()
