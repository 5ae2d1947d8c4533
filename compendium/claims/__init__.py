"""The registry of the paper's claims, the evidence that notebooks give, and the page that shows both.

Imports: system.

A change here changes what is said of a claim, never what was computed.
"""
