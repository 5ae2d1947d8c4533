"""What runs around the library: data, trials, batches, provenance, figures, the command line."""

import sys

# If this package is installed, jsonschema builds a grammar when it is imported, which takes seconds and which
# no schema here needs. With None in its place, Python does not find the package.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
