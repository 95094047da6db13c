"""The functions of cuDNN that bench.gpu.cudnn calls, without a GPU: checks every argument against its declared type."""

import ctypes

NOT_SUPPORTED = 3000


class Function:
    """Callable with argtypes, as those of a loaded library."""

    def __init__(self, action):
        self.action, self.argtypes, self.restype = action, None, None

    def __call__(self, *arguments):
        assert len(arguments) == len(self.argtypes)
        for argument, wanted in zip(arguments, self.argtypes):
            wanted.from_param(argument)  # TypeError where ctypes would refuse it
        return self.action(*arguments)


class FakeCudnn:
    """Hands out handles and addresses, and remembers calls.

    Attributes:
        refuse: names of functions that fail.
        alive: descriptors that were created and not destroyed.
        at: (pseudo layer, number of the matrix) -> (address of the matrix, of the bias).
    """

    WORK = 1000

    def __init__(self, sizes, refuse=()):
        self.calls, self.refuse, self.alive, self.at = [], set(refuse), set(), {}
        self._sizes, self._next_handle = sizes, 0x7F00_0000_0000
        self.cudnnGetErrorString = Function(lambda status: b"CUDNN_STATUS_NOT_SUPPORTED")
        self.cudnnGetLastErrorString = Function(self._last_error)
        self._functions = {}

    def __getattr__(self, name):
        if not name.startswith("cudnn"):
            raise AttributeError(name)
        return self._functions.setdefault(name, Function(lambda *arguments: self._call(name, arguments)))

    def named(self, name):
        """The arguments of every call of a function."""
        return [arguments for called, arguments in self.calls if called == name]

    def _last_error(self, text, size):
        text.value = b"no kernel for this size"

    def _call(self, name, arguments):
        if name in self.refuse:
            return NOT_SUPPORTED
        self.calls.append((name, arguments))
        if name.startswith("cudnnCreate"):
            self._next_handle += 64
            arguments[0]._obj.value = self._next_handle
            if name != "cudnnCreate":
                self.alive.add(self._next_handle)
        elif name.startswith("cudnnDestroy"):
            self.alive.remove(arguments[0].value)
        elif name == "cudnnGetRNNWeightSpaceSize":
            arguments[2]._obj.value = sum(self._sizes.values())
        elif name == "cudnnGetRNNTempSpaceSizes":
            arguments[4]._obj.value, arguments[5]._obj.value = self.WORK, 0
        elif name == "cudnnGetRNNWeightParams":
            self._place(*arguments)
        return 0

    def _place(self, handle, rnn, pseudo_layer, size, space, number, matrix, at_matrix, bias, at_bias):
        assert size == sum(self._sizes.values())
        offset = 0
        for part, num_bytes in self._sizes.items():
            if part == (pseudo_layer, number, "matrix"):
                at_matrix._obj.value = space + offset
            if part == (pseudo_layer, number, "bias"):
                at_bias._obj.value = space + offset
            offset += num_bytes
        self.at[pseudo_layer, number] = at_matrix._obj.value, at_bias._obj.value


def read(address, num_bytes):
    """Memory as bytes."""
    return ctypes.string_at(address, num_bytes)
