"""``prnn demo``: two published recurrent networks on real speech, timed beside torch.nn and onnxruntime."""
