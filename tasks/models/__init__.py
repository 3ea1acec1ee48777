"""Keras models, ours and those of users, as TFF trains them."""
