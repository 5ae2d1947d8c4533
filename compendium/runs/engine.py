"""A papermill engine whose notebooks can tell their batch how far they are.

Papermill's own engine builds the nbclient that executes a notebook and lets nobody at it. This one does the
same, and hands the messages of the studies' comm to a function that is given to `papermill.execute_notebook`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines

from compendium.experiments.progress import TARGET, Report
from compendium.system.kernels import CLIENT_OPTIONS

NAME = "mlogb"


class _Engine(Engine):  # type: ignore[misc]
    @classmethod
    def execute_managed_notebook(
        cls, manager: Any, kernel_name: str, receive: Callable[[Report], None], **_: Any
    ) -> None:
        """Execute the cells, and call `receive` with each report while they are executed."""
        client = PapermillNotebookClient(
            manager, kernel_name=kernel_name, log=logging.getLogger("papermill"), **CLIENT_OPTIONS
        )
        comm = SimpleNamespace(handle_msg=lambda message: receive(message["content"]["data"]))
        client.comm_open_handlers[TARGET] = lambda message: comm
        client.execute()


papermill_engines.register(NAME, _Engine)
