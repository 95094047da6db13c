"""Ways to compute a layer. Each family says what it can run and what it needs; plan/ chooses among them."""
