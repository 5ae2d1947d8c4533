"""The algorithms of EOFD-MLogB and OFUL-MLogB: small, readable, NumPy and SciPy only."""
