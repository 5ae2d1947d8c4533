"""``mlogb`` and ``python -m compendium``: the command line, or the name of the extra that it needs."""

from __future__ import annotations


def main() -> None:
    """Run the command line, which always raises SystemExit.

    ``pip install .`` installs only the library. In that case the message names the extra that is missing,
    instead of a traceback that ends in the name of a package. If a module of this project itself is missing,
    the error is raised.
    """
    try:
        from compendium import cli

        cli.main()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "compendium", "mlogb_core"):
            raise
        raise SystemExit(
            f'mlogb needs {package}, which the extra `compendium` brings: pip install ".[compendium]"'
        ) from None


if __name__ == "__main__":
    main()
