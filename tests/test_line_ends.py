"""A clone on a system that turns line ends into its own must still have the bytes of the checksums."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from compendium import paths


def git(*arguments, folder):
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.skipif(
    shutil.which("git") is None or not (paths.project_root() / ".git").exists(), reason="needs a git clone"
)
def test_a_clone_with_windows_line_ends_has_the_committed_bytes(tmp_path):
    root = paths.project_root()
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--no-checkout", "--shared", str(root), str(clone), folder=tmp_path)
    shutil.copy(root / ".gitattributes", clone / ".gitattributes")
    git("config", "core.autocrlf", "true", folder=clone)
    git("checkout", "HEAD", "--", "claims.yml", "ERRATA.md", "papermill_runs/mnist", folder=clone)
    checked_out = git("ls-files", "--eol", "papermill_runs/mnist", "claims.yml", "ERRATA.md", folder=clone)
    assert "w/lf" in checked_out
    assert "w/crlf" not in checked_out
    assert "w/mixed" not in checked_out
