"""A papermill engine whose notebooks can tell their batch how far they are.

Papermill's own engine builds the nbclient that executes a notebook and lets nobody at it. This one does the
same, and hands the messages of the studies' comm to a function that is given to `papermill.execute_notebook`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from nbclient.exceptions import CellExecutionError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines

from compendium.experiments.progress import TARGET, Report, Stopped
from compendium.system.kernels import CLIENT_OPTIONS

NAME = "mlogb"
LARGEST_OUTPUT = 10_000_000  # characters that the cells of a notebook may print


class _Client(PapermillNotebookClient):  # type: ignore[misc]
    """Papermill's client, with a limit of what is printed, which can go on where a study was stopped."""

    def __init__(
        self, manager: Any, receive: Callable[[Report], None], goes_on: bool, **options: Any
    ) -> None:
        super().__init__(manager, **options)
        self._receive, self._goes_on = receive, goes_on
        self.printed = 0
        self.stopped: list[str] = []

    def papermill_execute_cells(self) -> None:
        """Execute the cells until one fails.

        A plan and a shard have no results of a study. If `goes_on`, the cells that need them are passed over,
        and those that define another study are not.
        """
        skipped = 0
        for index, cell in enumerate(self.nb.cells):
            try:
                self.nb_man.cell_start(cell, index)
                self.execute_cell(cell, index)
            except CellExecutionError as error:
                if self._goes_on and error.ename == Stopped.__name__:
                    self.stopped.append(error.evalue)
                elif self.stopped and error.ename == "NameError":
                    skipped += 1
                else:
                    self.nb_man.cell_exception(cell, cell_index=index, exception=error)
                    self.stopped.clear()  # papermill raises the error of the cell
                    break
            finally:
                self.nb_man.cell_complete(cell, cell_index=index)
        if skipped:
            number = "one cell needs" if skipped == 1 else f"{skipped} cells need"
            self._receive({"text": f"{number} results that are not there yet; a study in them comes later"})

    def process_message(self, message: Any, cell: Any, cell_index: int) -> Any:
        """Take an output in, up to a limit: a notebook of gigabytes can be neither stored nor read."""
        content = message["content"]
        self.printed += len(content.get("text", "")) + sum(
            map(len, map(str, content.get("data", {}).values()))
        )
        if self.printed > LARGEST_OUTPUT:
            # At once, and not when the client comes to it: what is printed meanwhile fills the memory.
            self.km.provisioner.process.kill()
            raise DeadKernelError("it prints too much")
        return super().process_message(message, cell, cell_index)


class _Engine(Engine):  # type: ignore[misc]
    @classmethod
    def execute_managed_notebook(
        cls,
        manager: Any,
        kernel_name: str,
        receive: Callable[[Report], None],
        goes_on: bool,
        timeout: float | None,
        **_: Any,
    ) -> None:
        """Execute the cells.

        `receive` is called with each report while they are executed. With `goes_on` a study that was stopped
        does not stop the others. A cell may take `timeout` seconds.
        """
        client = _Client(
            manager,
            receive,
            goes_on,
            kernel_name=kernel_name,
            timeout=timeout,
            log=logging.getLogger("papermill"),
            **CLIENT_OPTIONS,
        )
        comm = SimpleNamespace(handle_msg=lambda message: receive(message["content"]["data"]))
        client.comm_open_handlers[TARGET] = lambda message: comm
        try:
            client.execute()
        except DeadKernelError:
            if client.printed > LARGEST_OUTPUT:  # it was ended for that
                raise RuntimeError(f"the notebook printed more than {LARGEST_OUTPUT:,} characters") from None
            raise
        if client.stopped:
            raise Stopped("\n".join(dict.fromkeys(client.stopped)))


papermill_engines.register(NAME, _Engine)
