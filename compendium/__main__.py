"""``mlogb`` and ``python -m compendium``: the command line, or the name of the extra that it needs."""

from __future__ import annotations


def main() -> None:
    """Run the command line; always leaves by SystemExit.

    ``pip install .`` brings the library alone. Then this names the extra, in place of a traceback that
    ends in the name of some package. A module of this project that is missing is an error as ever.
    """
    try:
        from compendium import cli

        cli.main()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "compendium", "mlogb_core"):
            raise
        raise SystemExit(
            f"mlogb needs {package}, which the extra `compendium` brings: pip install .[compendium]"
        ) from None


if __name__ == "__main__":
    main()
