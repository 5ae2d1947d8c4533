"""Timing of all variants side by side: `python -m benchmarks`, or `make bench`.

All times come from one process with one thread and go into one record. `plan` says what is measured,
`variants` builds the policies, and `timing` plays them in interleaved blocks. `counts`, `machine` and
`roofline` compare the times with what the machine could reach at best. `memory` and `regret` add memory and
regret; `report` and `figures` write tables, page and figures; `cli` is the command line.
"""
