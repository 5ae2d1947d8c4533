"""Timing of all variants side by side: `python -m benchmarks`, or `make bench`.

Times that are compared come from one process with one thread. `plan` says what is measured, `variants`
builds the policies, `timing` plays them in interleaved blocks, and `sparse` does so with sparse actions,
whose record is one of its own. `counts`, `machine` and `roofline` compare the times with what the machine
could reach at best, `vectors` once more in a process with shorter vectors, and `calls` says where a round
goes. `memory` and `regret` add memory and regret; `report`, `report_sparse`, `markdown` and `figures` write
tables, pages and figures; `cli` is the command line.
"""
