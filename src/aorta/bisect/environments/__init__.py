"""Two environments: which of the changed packages matters, then which release of it."""
