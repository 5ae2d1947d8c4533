"""Timing of all variants side by side: `python -m benchmarks`, or `make bench`.

One process, one thread, one record. `plan` says what is measured, `variants` builds it, `timing`
plays it in interleaved blocks, `counts` and `machine` say what the machine could do at best,
`memory` and `regret` add bytes and regret, `report` and `figures` write it down.
"""
