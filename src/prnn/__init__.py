"""prnn: recurrent layers that keep their weights on the chip."""
