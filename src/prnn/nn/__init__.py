"""Recurrent layers in the shape of torch.nn: same arguments, same results, same state_dict."""

from prnn import ops as _ops  # first: it says what to install where PyTorch is absent
from prnn.nn.cells import GRUCell, LSTMCell, RNNCell
from prnn.nn.layers import GRU, LSTM, RNN, Recurrent

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell", "Recurrent"]
