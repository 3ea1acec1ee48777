"""The commands: `tff-clipping-budget` and `tff-clipping-ledger`."""
