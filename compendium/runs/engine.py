"""A papermill engine by which notebooks report the progress of their studies to the batch.

Papermill's own engine creates the client that executes a notebook and gives no access to it. This engine
creates the same client, and passes the messages of the studies' comm (see `compendium.experiments.progress`)
to a function that is an option of `papermill.execute_notebook`.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from nbclient.exceptions import CellExecutionError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines

from compendium.experiments.data import DataError
from compendium.experiments.execution import TrialsFailedError
from compendium.experiments.progress import TARGET, Message, Stopped
from compendium.system.kernels import CLIENT_OPTIONS

NAME = "mlogb"
LARGEST_OUTPUT = 10_000_000  # characters that the cells of a notebook may print
STARTS = 3  # how often a kernel is started that ends before it has executed anything


class _Client(PapermillNotebookClient):  # type: ignore[misc]
    """Papermill's client with a limit on what cells print, and which can continue after a stopped study."""

    def __init__(
        self, manager: Any, receive: Callable[[Message], None], goes_on: bool, **options: Any
    ) -> None:
        super().__init__(manager, **options)
        self._receive, self._goes_on = receive, goes_on
        self.printed = 0
        self.stopped: list[str] = []
        self._kernel_options: dict[str, Any] = {}

    def start_new_kernel(self, **options: Any) -> None:
        """Start a kernel, and remember with which options."""
        self._kernel_options = options
        super().start_new_kernel(**options)

    def start_new_kernel_client(self, **options: Any) -> Any:
        """Connect with the kernel; start another one if it has ended already.

        The ports of a kernel are chosen before it opens them, so that another process may take one between.
        """
        for _ in range(STARTS - 1):
            try:
                return super().start_new_kernel_client(**options)
            except RuntimeError:
                self.km = self.create_kernel_manager()
                self.start_new_kernel(**self._kernel_options)
        return super().start_new_kernel_client(**options)

    def papermill_execute_cells(self) -> None:
        """Execute the cells until one fails.

        For a plan or a shard, a study has no results. With `goes_on`, further cells are executed then, since
        one of them may run another study. Those that fail for want of the results are skipped, and their
        errors are left out of the notebook, in which papermill takes the first one for that of the run.
        """
        skipped = 0
        for index, cell in enumerate(self.nb.cells):
            try:
                self.nb_man.cell_start(cell, index)
                self.execute_cell(cell, index)
            except CellExecutionError as error:
                if self._goes_on and error.ename == Stopped.__name__:
                    self.stopped.append(error.evalue)
                elif self.stopped and _may_lack_results(error.ename):
                    skipped += 1
                else:
                    self.stopped.clear()
                    self.nb_man.cell_exception(cell, cell_index=index, exception=error)
                    break
                cell.outputs = [output for output in cell.outputs if output.output_type != "error"]
            finally:
                self.nb_man.cell_complete(cell, cell_index=index)
        if skipped:
            number = "one cell needs" if skipped == 1 else f"{skipped} cells need"
            self._receive({"text": f"{number} a study that is not complete: skipped until you run again"})

    def process_message(self, message: Any, cell: Any, cell_index: int) -> Any:
        """Add an output to the notebook, and end the kernel if its outputs are too large to be stored."""
        content = message["content"]
        self.printed += len(content.get("text", "")) + sum(
            map(len, map(str, content.get("data", {}).values()))
        )
        if self.printed > LARGEST_OUTPUT:
            # The kernel is killed, because what it prints until it ends in an orderly way would fill the
            # memory.
            self.km.provisioner.process.kill()
            raise DeadKernelError("it prints too much")
        return super().process_message(message, cell, cell_index)


def _may_lack_results(name: str) -> bool:
    """Whether an error of this name can be for want of a study's results.

    That shows as the error of a missing name, of an empty list or of a missing entry. Trials that failed,
    data that are absent, and a disk or a memory that is full are errors of their own.
    """
    kind = getattr(builtins, name, None)
    own = isinstance(kind, type) and issubclass(kind, (OSError, MemoryError))
    return not own and name not in (TrialsFailedError.__name__, DataError.__name__)


class _Engine(Engine):  # type: ignore[misc]
    @classmethod
    def execute_managed_notebook(
        cls,
        manager: Any,
        kernel_name: str,
        receive: Callable[[Message], None],
        goes_on: bool,
        timeout: float | None,
        **_: Any,
    ) -> None:
        """Execute the cells.

        Each message of a study is passed to `receive`. With `goes_on`, cells after a stopped study are
        executed. A cell may take `timeout` seconds, or any time if that is None.
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
            if client.printed > LARGEST_OUTPUT:  # `process_message` has killed it
                raise RuntimeError(f"the notebook printed more than {LARGEST_OUTPUT:,} characters") from None
            raise
        if client.stopped:
            raise Stopped("\n".join(dict.fromkeys(client.stopped)))


papermill_engines.register(NAME, _Engine)
