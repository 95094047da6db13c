"""Recurrent layers in the shape of torch.nn: same arguments, same results, same state_dict."""

import prnn.ops  # noqa: F401  first: it says what to install where PyTorch is absent
from prnn.nn.cells import GRUCell, LSTMCell, RNNCell
from prnn.nn.layers import GRU, LSTM, RNN, Recurrent
from prnn.nn.quantized import Quantized

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "Quantized", "RNNCell", "Recurrent"]
