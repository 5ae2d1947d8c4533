"""What runs around the library: data, trials, batches, provenance, figures, the command line."""
